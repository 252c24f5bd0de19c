//! Description of the machine in a report.

use std::collections::BTreeSet;
use std::fs;
use std::time::{Duration, SystemTime};

use base::cli::CommonArgs;
use base::outcome::{CommandError, as_usage};
use base::readable::counted_as;

/// The name of the device that runs use: the one that was asked for, or the one that they would
/// choose.
pub(super) fn device(common: &CommonArgs) -> Result<String, CommandError> {
    let device = rdma_conn::device::open(common.device.as_deref()).map_err(as_usage)?;
    Ok(device.name().to_owned())
}

/// The name of the processor, as the kernel has it.
pub(super) fn processor() -> String {
    let text = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("model name"));
    line.map_or("unknown", |rest| rest.trim_start_matches([':', ' ', '\t'])).to_owned()
}

/// Processors that this process may run on.
pub(super) fn cores() -> u32 {
    std::thread::available_parallelism().map_or(1, |n| n.get() as u32)
}

/// Describes the topology of the processors.
pub(super) fn topology() -> String {
    let of = |cpu: usize, what: &str| {
        let path = format!("/sys/devices/system/cpu/cpu{cpu}/topology/{what}");
        fs::read_to_string(path).ok().map(|text| text.trim().to_owned())
    };
    let all: Vec<_> = (0..4096)
        .map_while(|cpu| Some((of(cpu, "physical_package_id")?, of(cpu, "core_id")?)))
        .collect();
    let packages: BTreeSet<_> = all.iter().map(|(package, _)| package).collect();
    let cores: BTreeSet<_> = all.iter().collect();
    match all.len() {
        0 => "unknown".into(),
        n => {
            let of = |n: usize, one, many| counted_as(n as u64, one, many);
            let sockets = of(packages.len(), "socket", "sockets");
            format!("{sockets}, {}, {n} threads", of(cores.len(), "core", "cores"))
        }
    }
}

/// Now, as RFC 3339 has it.
pub(super) fn now() -> String {
    let now = SystemTime::UNIX_EPOCH + Duration::from_nanos(host::time::wall_ns());
    humantime::format_rfc3339_seconds(now).to_string()
}
