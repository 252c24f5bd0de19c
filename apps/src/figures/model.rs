//! The performance model of the thesis ("Know Your Memory: RDMA-Based Protocols for Data Exchange",
//! Fischer, 2021): LogGP, with the costs of processor and card apart. It predicts Send/Receive over
//! one connection.
//!
//! | | |
//! |---|---|
//! | latency | `o_snd + o_nic + (k-1) G + L + o_nic + o_rcv` |
//! | messages per second | the least of `u / (o_snd + g)`, `1 / o_snd`, `1 / (o_rcv + o_post)` and `1 / (o_nic + (k-1) G)` |
//!
//! `k` is the size in bytes, `u` the number of unacknowledged messages, and `g = g_fix + k G` the time
//! from a post to its acknowledgement. A prediction says what the parameters imply, and no more: where
//! a measurement differs, the model does not explain it.

use super::calibration::Calibration;
use super::experiment::{Experiment, MODELS, Run};
use super::report::{Figure, Predicted};
use crate::measure::Spread;

/// The parameters of a device, in microseconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Parameters {
    /// The processor posts a request.
    o_snd: f64,
    /// The processor takes a completion.
    o_rcv: f64,
    /// The processor posts a receive.
    o_post: f64,
    /// The card handles a message, at either end.
    o_nic: f64,
    /// The network carries a packet.
    latency: f64,
    /// From a post to the acknowledgement of a message of no bytes.
    g_fix: f64,
    /// A byte.
    byte: f64,
}

/// The parameters of a device, of requests that are posted one by one and in lists.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Model {
    single: Parameters,
    batched: Parameters,
}

/// The thesis' fit to a ConnectX-5 with 100 Gbit/s.
const CONNECTX5: Model = Model {
    single: Parameters {
        o_snd: 0.12,
        o_rcv: 0.052,
        o_post: 0.016,
        o_nic: 0.02,
        latency: 1.9,
        g_fix: 3.4,
        byte: 0.2e-3,
    },
    batched: Parameters {
        o_snd: 0.016,
        o_rcv: 0.017,
        o_post: 0.007,
        o_nic: 0.02,
        latency: 1.9,
        g_fix: 3.4,
        byte: 0.084e-3,
    },
};

/// The model of this name, one of [`MODELS`].
pub(crate) fn named(name: &str) -> Option<Model> {
    (name == MODELS[0]).then_some(CONNECTX5)
}

/// What a curve differs by from what was measured, as parts of that.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct CurveError {
    pub(crate) median: f64,
    pub(crate) largest: f64,
    /// Where the largest one is.
    pub(crate) at: u64,
}

impl CurveError {
    /// That of a curve which predicts a case; nothing without points to compare.
    pub(crate) fn of(figure: &Figure, curve: &Predicted) -> Option<CurveError> {
        let series = figure.series(curve.case.as_deref()?)?;
        let divisor = figure.experiment.axis(Some(&curve.y))?.divisor();
        let errors: Vec<(f64, u64)> = curve
            .points
            .iter()
            .filter_map(|(x, predicted)| {
                let at = *x as u64;
                let measured = series.at(at)?.median(&curve.y)? / divisor;
                Some(((predicted / measured - 1.0).abs(), at)).filter(|(e, _)| e.is_finite())
            })
            .collect();
        let (largest, at) = errors.iter().copied().max_by(|a, b| a.0.total_cmp(&b.0))?;
        let median = Spread::of(errors.iter().map(|(error, _)| *error)).median;
        Some(CurveError { median, largest, at })
    }
}

/// Adds the curves that the experiment of a figure asks for, and those of its device, if that was
/// calibrated.
pub(crate) fn add_curves(figure: &mut Figure, quick: bool, device: Option<&Calibration>) {
    let experiment = figure.experiment.clone();
    figure.predicted.clear();
    for asked in &experiment.curves {
        let (Some(model), Some(y)) = (named(&asked.model), experiment.axis(asked.y.as_deref()))
        else {
            continue;
        };
        let first = experiment.cases.first().map(|case| &case.label);
        let Some(case) = asked.case.as_ref().or(first) else { continue };
        let points = model.curve(&experiment, case, &y.key, y.divisor(), quick);
        let (label, case) = (asked.label.clone(), Some(case.clone()));
        figure.predicted.push(Predicted { label, case, y: y.key.clone(), points });
    }
    if let Some(calibration) = device {
        Model::of(calibration).draw(figure, quick);
    }
}

/// What a run sends.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Traffic {
    is_pingpong: bool,
    bytes: f64,
    unacked: f64,
    is_batched: bool,
}

impl Traffic {
    /// That of a run, if the model is about it: one connection of Send/Receive, with the flags that
    /// have a part in the model, and no other.
    fn of(words: &[String]) -> Option<Traffic> {
        let (command, flags) = words.split_first()?;
        let is_pingpong = match command.as_str() {
            "pingpong" => true,
            "bench" => false,
            _ => return None,
        };
        let (mut size, mut unacked, mut batch, mut preset) = (None, None, None, "batched");
        for pair in flags.chunks(2) {
            let [flag, value] = pair else { return None };
            match flag.as_str() {
                "--protocol" if value == "send-recv" => {}
                "--size" => size = Some(value.parse().ok()?),
                "--unacked" => unacked = Some(value.parse().ok()?),
                "--batch" => batch = Some(value.parse::<u32>().ok()?),
                "--preset" => preset = value,
                _ => return None,
            }
        }
        let (of_unacked, of_batch) = match preset {
            "sequential" => (1.0, 1),
            "unbatched" => (64.0, 1),
            "batched" => (256.0, 8),
            _ => return None,
        };
        Some(Traffic {
            is_pingpong,
            bytes: size?,
            unacked: unacked.unwrap_or(of_unacked),
            is_batched: batch.unwrap_or(of_batch) > 1,
        })
    }
}

impl Model {
    /// The network and both cards are one parameter: what limits a card is not known.
    fn of(calibration: &Calibration) -> Model {
        let Calibration { o_snd_ns, o_rcv_ns, o_post_ns, g_ns, l_ns, gap_per_byte_ns, .. } =
            *calibration;
        let single = Parameters {
            o_snd: o_snd_ns / 1e3,
            o_rcv: o_rcv_ns / 1e3,
            o_post: o_post_ns / 1e3,
            o_nic: 0.0,
            latency: l_ns / 1e3,
            g_fix: g_ns / 1e3,
            byte: gap_per_byte_ns / 1e3,
        };
        let batched = Parameters {
            o_snd: calibration.o_snd_batched_ns / 1e3,
            o_rcv: calibration.o_rcv_batched_ns / 1e3,
            o_post: calibration.o_post_batched_ns / 1e3,
            ..single
        };
        Model { single, batched }
    }

    /// Half a round trip, in microseconds.
    fn latency(&self, bytes: f64) -> f64 {
        let Parameters { o_snd, o_rcv, o_nic, latency, .. } = self.single;
        o_snd + o_nic + self.single.carries(bytes) + latency + o_nic + o_rcv
    }

    /// Messages per microsecond.
    fn rate(&self, bytes: f64, unacked: f64, is_batched: bool) -> f64 {
        let p = if is_batched { self.batched } else { self.single };
        let acknowledged = p.o_snd + p.g_fix + bytes * p.byte;
        [
            unacked / acknowledged,
            1.0 / p.o_snd,
            1.0 / (p.o_rcv + p.o_post),
            1.0 / (p.o_nic + p.carries(bytes)),
        ]
        .into_iter()
        .fold(f64::INFINITY, f64::min)
    }

    /// What a result of this key would be, in the unit of the key.
    fn predict(&self, traffic: Traffic, key: &str) -> Option<f64> {
        let Traffic { is_pingpong, bytes, unacked, is_batched } = traffic;
        let rate = || self.rate(bytes, unacked, is_batched) * 1e6;
        match (is_pingpong, key) {
            (true, "latency_ns_p50") => Some(self.latency(bytes) * 1e3),
            (false, "messages_per_s") => Some(rate()),
            (false, "bytes_per_s") => Some(rate() * bytes),
            _ => None,
        }
    }

    /// Adds what it predicts of a figure: a curve for each case that it is about.
    pub(crate) fn draw(&self, figure: &mut Figure, quick: bool) {
        let experiment = figure.experiment.clone();
        for y in &experiment.y {
            for case in &experiment.cases {
                let points = self.curve(&experiment, &case.label, &y.key, y.divisor(), quick);
                if !points.is_empty() {
                    figure.predicted.push(Predicted {
                        label: format!("model: {}", case.label),
                        case: Some(case.label.clone()),
                        y: y.key.clone(),
                        points,
                    });
                }
            }
        }
    }

    fn curve(
        &self,
        experiment: &Experiment,
        case: &str,
        key: &str,
        divisor: f64,
        quick: bool,
    ) -> Vec<(f64, f64)> {
        let point = |run: Run<'_>| {
            let value = self.predict(Traffic::of(&run.words)?, key)?;
            Some((run.x as f64, value / divisor))
        };
        experiment.runs(quick).filter(|run| run.case == case).filter_map(point).collect()
    }
}

impl Parameters {
    /// How long the link takes for so many bytes.
    fn carries(&self, bytes: f64) -> f64 {
        (bytes - 1.0).max(0.0) * self.byte
    }
}

/// A figure that a paper names, and what the model makes of it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Headline {
    pub(crate) what: &'static str,
    pub(crate) unit: &'static str,
    pub(crate) paper: f64,
    pub(crate) model: f64,
}

impl Headline {
    /// Beyond this, the model does not explain what was measured.
    const EXPLAINS: f64 = 0.25;

    /// How far the model is from the paper, as a part of the paper's.
    pub(crate) fn error(&self) -> f64 {
        (self.model - self.paper) / self.paper
    }

    pub(crate) fn is_explained(&self) -> bool {
        self.error().abs() <= Self::EXPLAINS
    }
}

impl Model {
    /// The papers' figures that the text has numbers of.
    pub(crate) fn headlines(&self) -> Vec<Headline> {
        let Parameters { o_snd, g_fix, byte, .. } = self.single;
        // Requests of a ConnectX-4, of all members and of the sender: a multicast to two others
        // takes 10, of which the sender's card sends 6.
        let (requests, of_all, of_sender) = (75.0, 10.0, 6.0);
        vec![
            Headline {
                what: "Send/Receive, half a round trip, 16 B",
                unit: "µs",
                paper: 2.0,
                model: self.latency(16.0),
            },
            Headline {
                what: "unacknowledged messages that saturate a connection, 16 B, one by one",
                unit: "messages",
                paper: 32.0,
                model: (o_snd + g_fix + 16.0 * byte) / o_snd,
            },
            Headline {
                what: "Send/Receive, one connection, 16 B, batched",
                unit: "M msg/s",
                paper: 14.0,
                model: self.rate(16.0, 256.0, true),
            },
            Headline {
                what: "Send/Receive, 32 unacknowledged beside 1, 16 B",
                unit: "times",
                paper: 5.0,
                model: self.rate(16.0, 32.0, false) / self.rate(16.0, 1.0, false),
            },
            Headline {
                what: "Send/Receive, 8 requests to a doorbell beside 1, 16 B",
                unit: "times",
                paper: 2.0,
                model: self.rate(16.0, 256.0, true) / self.rate(16.0, 64.0, false),
            },
            Headline {
                what: "multicast in a group of 3, by the work of all members",
                unit: "M multicasts/s",
                paper: 7.5,
                model: requests / of_all,
            },
            Headline {
                what: "multicast in a group of 3, by what the sender's card sends",
                unit: "M multicasts/s",
                paper: 7.5,
                model: requests / of_sender,
            },
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figures::builtin;

    fn traffic(line: &str) -> Option<Traffic> {
        Traffic::of(&line.split(' ').map(str::to_owned).collect::<Vec<_>>())
    }

    #[test]
    fn a_calibrated_device_has_curves_and_their_errors() {
        let calibration = Calibration {
            o_snd_ns: 120.0,
            o_snd_batched_ns: 16.0,
            o_rcv_ns: 52.0,
            o_rcv_batched_ns: 17.0,
            o_post_ns: 16.0,
            o_post_batched_ns: 7.0,
            g_ns: 3400.0,
            l_ns: 1940.0,
            gap_per_byte_ns: 0.2,
        };
        let experiment = builtin::named("send-recv-latency-by-size").unwrap().experiment().unwrap();
        let mut figure = Figure::new("f", experiment.clone());
        add_curves(&mut figure, false, Some(&calibration));
        let curve = |figure: &Figure| {
            let ours = figure.predicted.iter().find(|curve| curve.label.starts_with("model: "));
            ours.unwrap().clone()
        };
        // 120 + 1940 + 52, and 15 bytes of 0.2.
        let (x, at_16) = curve(&figure).points[0];
        assert_eq!(x, 16.0);
        assert!((at_16 - 2.115).abs() < 1e-9, "{at_16}");
        assert_eq!(CurveError::of(&figure, &curve(&figure)), None, "nothing was measured");
        let case = curve(&figure).case.unwrap();
        for (run, factor) in experiment.runs(false).filter(|run| run.case == case).zip([0.5, 1.0]) {
            let points = curve(&figure).points;
            let at = points.iter().find(|(x, _)| *x == run.x as f64).unwrap().1;
            let ns = at * factor * 1e3;
            let result = [("latency_ns_p50".to_owned(), ns.into())].into_iter().collect();
            figure.add(&run, &result);
        }
        let error = CurveError::of(&figure, &curve(&figure)).unwrap();
        assert!((error.largest - 1.0).abs() < 1e-6 && error.at == 16, "{error:?}");
        assert!((error.median - 0.5).abs() < 1e-6, "{error:?}");
    }

    /// Worked out by hand from the table of parameters.
    #[test]
    fn predictions_are_those_of_the_formulas() {
        let predict =
            |line: &str, key: &str| CONNECTX5.predict(traffic(line).unwrap(), key).unwrap();
        let near = |a: f64, b: f64| assert!((a / b - 1.0).abs() < 1e-9, "{a} {b}");
        near(predict("pingpong --size 16", "latency_ns_p50"), 2115.0);
        near(predict("bench --preset sequential --size 1000", "messages_per_s"), 1e6 / 3.72);
        near(predict("bench --preset unbatched --size 16", "messages_per_s"), 1e6 / 0.12);
        near(predict("bench --unacked 256 --batch 1 --size 16", "messages_per_s"), 1e6 / 0.12);
        near(predict("bench --size 16", "messages_per_s"), 1e6 / 0.024);
        near(predict("bench --size 16 --unacked 8", "messages_per_s"), 8e6 / 3.417_344);
        let link = predict("bench --size 1000001", "bytes_per_s");
        near(link, 1_000_001.0 * 1e6 / 84.02);
    }

    #[test]
    fn runs_that_the_model_is_not_about_have_no_prediction() {
        for line in [
            "multicast --members 3",
            "bench --protocol buffered-read --size 16",
            "bench --size 16 --senders 4",
            "bench --size 16 --srq",
            "bench --op send --size 16",
            "bench --preset rare --size 16",
            "bench",
        ] {
            assert_eq!(traffic(line), None, "{line}");
        }
        assert_eq!(CONNECTX5.predict(traffic("bench --size 16").unwrap(), "rnr_events"), None);
    }

    #[test]
    fn what_differs_from_the_paper_is_not_explained() {
        let all = CONNECTX5.headlines();
        let explained =
            |what: &str| all.iter().find(|h| h.what.contains(what)).unwrap().is_explained();
        assert!(
            explained("half a round trip") && explained("saturate") && explained("all members")
        );
        assert!(!explained("batched") && !explained("sender's card"));
    }

    #[test]
    fn the_experiments_of_send_receive_have_curves() {
        for name in
            ["send-recv-latency-by-size", "send-recv-rate-by-unacked", "send-recv-rate-by-batch"]
        {
            let experiment = builtin::named(name).unwrap().experiment().unwrap();
            let xs = experiment.xs(false).len();
            let mut figure = Figure::new(name, experiment);
            CONNECTX5.draw(&mut figure, false);
            assert!(figure.predicted.iter().any(|curve| curve.points.len() == xs), "{name}");
        }
    }
}
