//! Speed of RoCE v2 beside plain UDP and TCP (iperf3's, and the command's own `--op udp`), in one run,
//! each end on a processor of its own.

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::end::{self, BuiltPrograms, CommandLines, NamespaceEnd};
use super::network::{JUMBO, Namespace, NamespacePair, ORDINARY};
use super::runner::is_chosen;
use crate::pair::LIMIT;

/// A figure: where it is in a JSON document, and what it is.
type Figure = (&'static str, FigureUnit);

/// A measurement: its name, the lines of both ends, and its figures in the JSON of the connecting end.
struct Measurement {
    name: &'static str,
    lines: CommandLines,
    figures: &'static [Figure],
    /// True if it uses a device, on which lost packets do not fail it.
    is_reliable: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FigureUnit {
    /// Bits a second, printed as MB/s.
    Bits,
    /// Bytes a second, printed as MB/s.
    Bytes,
    /// Nanoseconds, printed as µs.
    Nanoseconds,
    /// Percent of what was sent, which may be 0.
    PercentLost,
}

const TCP: &[Figure] = &[("/end/sum_received/bits_per_second", FigureUnit::Bits)];
const UDP: &[Figure] = &[
    ("/end/sum/bits_per_second", FigureUnit::Bits),
    ("/end/sum/lost_percent", FigureUnit::PercentLost),
];
const RATE: &[Figure] = &[("/bytes_per_s", FigureUnit::Bytes)];
const LATENCY: &[Figure] = &[("/latency_ns_p50", FigureUnit::Nanoseconds)];

fn measurements() -> Vec<Measurement> {
    let iperf3 = |more: &str| CommandLines {
        listener: "iperf3 -s -1 -B {host} -p {port}".to_owned(),
        connector: format!("iperf3 -c {{host}} -p {{port}} -t 3 -J{more}"),
    };
    let bench = |op| of_op(op, "bench", "--size 65536 --no-verify");
    let pingpong = |op| of_op(op, "pingpong --wait spin", "--size 16");
    let of = |name, lines, figures, is_reliable| Measurement { name, lines, figures, is_reliable };
    vec![
        of("iperf3, TCP", iperf3(""), TCP, false),
        // As fast as it can, in the longest datagrams.
        of("iperf3, UDP", iperf3(" -u -b 0 -l 65507"), UDP, false),
        of("bench --op udp, 64 KiB", bench("udp"), RATE, false),
        of("bench --op send, 64 KiB", bench("send"), RATE, true),
        of("pingpong --op udp, 16 B", pingpong("udp"), LATENCY, false),
        of("pingpong --op send, 16 B", pingpong("send"), LATENCY, true),
    ]
}

/// A measurement of our command, which takes no device for plain UDP.
fn of_op(op: &str, how: &str, more: &str) -> CommandLines {
    let CommandLines { listener, connector } =
        CommandLines::ours(&format!("{how} --op {op} --json"), more);
    let device = |line: String| match op {
        "udp" => line.replace(" --device {device}", ""),
        _ => line,
    };
    CommandLines { listener: device(listener), connector: device(connector) }
}

pub(super) fn run(filter: Option<&str>, built: &BuiltPrograms) -> Result<()> {
    let network = NamespacePair::join([Namespace::own(), Namespace::new()?], 0)?;
    let meter = Meter::new(filter, built);
    for (mtu, options) in
        [(JUMBO, ""), (ORDINARY, ""), (JUMBO, ",loss=0.01,seed=7"), (ORDINARY, ",loss=0.01,seed=7")]
    {
        network.set_mtu([mtu; 2])?;
        let ends = end::both(&network, |end| network.v4(end), |_| options.to_owned());
        meter.measure(&format!("MTU {mtu}{options}"), ends, !options.is_empty())?;
    }
    Ok(())
}

/// Measures, and prints the figures.
pub(super) struct Meter<'b> {
    filter: Option<&'b str>,
    built: &'b BuiltPrograms,
}

impl Meter<'_> {
    pub(super) fn new<'b>(filter: Option<&'b str>, built: &'b BuiltPrograms) -> Meter<'b> {
        Meter { filter, built }
    }

    /// Measures between two ends, each on a processor of its own: all, or what uses a device.
    pub(super) fn measure(
        &self,
        label: &str,
        mut ends: [NamespaceEnd<'_>; 2],
        devices_only: bool,
    ) -> Result<()> {
        for (end, processor) in ends.iter_mut().zip(["0", "1"]) {
            end.processor = Some(processor);
        }
        let all = measurements().into_iter().filter(|m| !devices_only || m.is_reliable);
        for m in all.filter(|m| is_chosen(self.filter, m.name)) {
            let printed = m.lines.run(self.built, &ends, LIMIT).context(m.name)?;
            let shown = shown(&printed, m.figures).context(m.name)?;
            println!("{label}: {}: {shown}", m.name);
        }
        Ok(())
    }
}

/// Figures of a JSON document, or of the last of several.
fn shown(printed: &str, figures: &[Figure]) -> Result<String> {
    let mut documents = serde_json::Deserializer::from_str(printed).into_iter::<Value>();
    let last = documents.by_ref().last().context("it printed no JSON")??;
    let shown = figures.iter().map(|(pointer, unit)| -> Result<String> {
        let value = last.pointer(pointer).and_then(Value::as_f64);
        let value = value.with_context(|| format!("no {pointer} in {last}"))?;
        ensure!(value > 0.0 || *unit == FigureUnit::PercentLost, "{pointer} is {value}");
        Ok(match unit {
            FigureUnit::Bits => format!("{:.0} MB/s", value / 8e6),
            FigureUnit::Bytes => format!("{:.0} MB/s", value / 1e6),
            FigureUnit::Nanoseconds => format!("{:.2} µs", value / 1e3),
            FigureUnit::PercentLost => format!("{value:.1} % lost"),
        })
    });
    Ok(shown.collect::<Result<Vec<_>>>()?.join(", "))
}

#[cfg(test)]
mod tests;
