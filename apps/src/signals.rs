//! Signals that ask for an end.

use anyhow::{Context, Result};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

/// Has `act` be called with the name of each signal that asks for an end. What was ignored when this
/// process began stays so: a hang-up (`nohup`), Ctrl-C in the background of a script.
pub(crate) fn watch(mut act: impl FnMut(&'static str) + Send + 'static) -> Result<()> {
    let ignored = std::fs::read_to_string("/proc/self/status").map_or(0, |text| ignored(&text));
    let all = [(SIGINT, "SIGINT"), (SIGTERM, "SIGTERM"), (SIGHUP, "SIGHUP")];
    let heard: Vec<_> = all.into_iter().filter(|(signal, _)| !has(ignored, *signal)).collect();
    let signals = Signals::new(heard.iter().map(|(signal, _)| signal));
    let mut signals = signals.context("no way to hear of signals")?;
    let wait = move || {
        for signal in signals.forever() {
            let named = heard.iter().find(|(other, _)| *other == signal);
            act(named.map_or("a signal", |(_, name)| name));
        }
    };
    let thread = std::thread::Builder::new().name("signals".into()).spawn(wait);
    thread.map(drop).context("no thread for signals")
}

fn has(signals: u64, signal: i32) -> bool {
    signals >> (signal - 1) & 1 == 1
}

/// The signals that a process ignores, a bit each, as the kernel tells them.
fn ignored(status: &str) -> u64 {
    let line = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    line.and_then(|bits| u64::from_str_radix(bits.trim(), 16).ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_ignored_is_known() {
        assert_eq!(ignored("Name:\tx\nSigIgn:\t0000000000001001\nSigCgt:\t01\n"), 0x1001);
        assert_eq!(ignored("Name:\tx\n"), 0);
        let own = std::fs::read_to_string("/proc/self/status").unwrap();
        // Rust's own, of writes to a reader that has gone.
        assert!(has(ignored(&own), signal_hook::consts::SIGPIPE));
    }
}
