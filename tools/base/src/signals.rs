//! Signals that ask for an end.
//!
//! A measurement ends early, as if its time were over: both ends settle what has arrived, results
//! so far are printed, and the other end is told why. What does not end so within `GRACE`, or at
//! a second signal, ends at once, and so does what has nothing to settle (`OnSignal`). The exit
//! status is 128 and the signal's number, as a shell has it.

use std::sync::atomic::{AtomicI32, Ordering};
use std::time::Duration;

use anyhow::{Context, Result};
use host::sync::{Mutex, MutexGuard};
use rustix::process::{Pid, Signal, kill_process};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::outcome;

/// The longest time that interrupted work has to end: on a busy machine a process may have no
/// processor for several seconds.
const GRACE: Duration = Duration::from_secs(8);

/// The signal that has arrived; 0 while there is none.
static CAME: AtomicI32 = AtomicI32::new(0);

/// Effect of a signal on a measurement.
#[derive(Debug, PartialEq, Eq)]
enum OnSignal {
    /// The measurement ends within [`GRACE`].
    Settle,
    /// The process prints these results and exits: waiting would give no others.
    Exit { results: String, until_first: bool },
}

/// Effect of a signal at the moment.
static ON_SIGNAL: Mutex<OnSignal> = Mutex::new(OnSignal::Settle);

fn on_signal() -> MutexGuard<'static, OnSignal> {
    ON_SIGNAL.lock()
}

/// Has a signal print `results` and exit from now on, until [`first_message`] or [`settles`]: for
/// a round of which no message has arrived.
pub fn exits_before_first_message(results: String) {
    *on_signal() = OnSignal::Exit { results, until_first: true };
}

/// Has a signal print `results` and exit from now on, until [`settles`]: for a round that is not a
/// result unless it is whole.
pub fn exits_with(results: String) {
    *on_signal() = OnSignal::Exit { results, until_first: false };
}

/// The first message of a round has arrived: a part of the round is a result.
pub fn first_message() {
    let mut now = on_signal();
    if matches!(*now, OnSignal::Exit { until_first: true, .. }) {
        *now = OnSignal::Settle;
    }
}

/// Has a measurement end at a signal, with its results so far.
pub fn settles() {
    *on_signal() = OnSignal::Settle;
}

/// Waits for other processes, by a call that does not look for signals: a signal exits at once.
///
/// # Errors
/// A signal had arrived before.
pub fn wait_for_others<T>(wait: impl FnOnce() -> T) -> Result<T, Interrupted> {
    exits_with(String::new());
    let _settles = Settles;
    match interrupted() {
        Some(interrupted) => Err(interrupted),
        None => Ok(wait()),
    }
}

/// Ends what [`wait_for_others`] has begun.
struct Settles;

impl Drop for Settles {
    fn drop(&mut self) {
        settles();
    }
}

/// The runs that this process waits for: they get the signals that only this process has got.
static HANDED_ON_TO: Mutex<Vec<Pid>> = Mutex::new(Vec::new());

/// Hands signals on to this process, too, from now on, and at once one that has arrived. The caller
/// has not waited for the process yet: the number is its own.
pub fn hand_on_to(process: Pid) {
    HANDED_ON_TO.lock().push(process);
    if is_interrupted() {
        hand_on();
    }
}

/// Hands no more signals on to this process. To be called before it is waited for: its number may
/// be another's then.
pub fn stop_handing_on_to(process: Pid) {
    HANDED_ON_TO.lock().retain(|known| *known != process);
}

/// Hands on the signal that has arrived. The other process ignores what this one ignores, so that
/// it hears the same signals.
fn hand_on() {
    let came = ALL.iter().find(|(signal, _)| *signal == CAME.load(Ordering::Relaxed));
    let signal = came.and_then(|(signal, _)| Signal::from_named_raw(*signal));
    send(signal.unwrap_or(Signal::TERM));
}

/// Sends a signal to the runs that this process waits for. Returns whether there is one.
fn send(signal: Signal) -> bool {
    let processes = HANDED_ON_TO.lock();
    // One may have ended already: nothing has waited for it, so that the number is its own.
    processes.iter().filter(|process| kill_process(**process, signal).is_ok()).count() > 0
}

/// A signal has asked for an end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{SAYS}{}", name(self.0))]
pub struct Interrupted(i32);

impl Interrupted {
    /// By the signal of this name.
    pub fn from_name(name: &str) -> Interrupted {
        Interrupted(number(name))
    }

    /// As a shell has it.
    pub fn exit_status(self) -> i32 {
        128 + self.0
    }
}

/// Start of the words by which an end says that a signal has ended it.
const SAYS: &str = "interrupted by ";

/// The signal that has asked for an end, if one has.
pub fn interrupted() -> Option<Interrupted> {
    // Relaxed: it orders nothing.
    Some(CAME.load(Ordering::Relaxed)).filter(|signal| *signal != 0).map(Interrupted)
}

/// Checks that no signal has asked for an end.
///
/// # Errors
/// One has.
pub fn go_on() -> Result<(), Interrupted> {
    interrupted().map_or(Ok(()), Err)
}

/// Reports whether a signal has asked for an end: for loops, to look often.
#[inline]
pub fn is_interrupted() -> bool {
    CAME.load(Ordering::Relaxed) != 0
}

/// Reports whether a failure is that a signal has ended this end, or the other one.
pub fn is_interruption(failure: &anyhow::Error) -> bool {
    let others = format!("the other end: {SAYS}");
    failure.is::<Interrupted>() || failure.to_string().starts_with(&others)
}

/// Has measurements end early at a signal.
pub fn end_early() -> Result<()> {
    let mut came = false;
    watch(move |signal| {
        let interrupted = Interrupted(number(signal));
        // Under the lock: a wait either sees that a signal has arrived, or is ended here.
        let now = on_signal();
        CAME.store(interrupted.0, Ordering::Relaxed);
        if let OnSignal::Exit { results, .. } = &*now {
            if !results.is_empty() {
                outcome::say(format_args!("{results}"));
            }
            outcome::exit(interrupted.exit_status(), format_args!("rdma-conn: {interrupted}"));
        }
        drop(now);
        hand_on();
        if std::mem::replace(&mut came, true) {
            send(Signal::KILL);
            std::process::exit(interrupted.exit_status());
        }
        let ends = move || {
            host::time::sleep(GRACE);
            // What this process waits for ends now, and then this process has its time to settle.
            if send(Signal::KILL) {
                host::time::sleep(GRACE);
            }
            let why = "what was under way has not ended in";
            let line = format_args!("rdma-conn: {interrupted}; {why} {GRACE:?}");
            outcome::exit(interrupted.exit_status(), line);
        };
        // Without a thread for it, a second signal is not heard before the time is over.
        if host::thread::spawn("grace", ends).is_err() {
            ends();
        }
    })
}

/// The signals that ask for an end.
const ALL: [(i32, &str); 3] = [(SIGINT, "SIGINT"), (SIGTERM, "SIGTERM"), (SIGHUP, "SIGHUP")];

fn name(signal: i32) -> &'static str {
    ALL.iter().find(|(known, _)| *known == signal).map_or("a signal", |(_, name)| name)
}

fn number(name: &str) -> i32 {
    ALL.iter().find(|(_, known)| *known == name).map_or(SIGTERM, |(signal, _)| *signal)
}

/// The exit status of a process that the signal of this name has ended.
pub fn exit_status(name: &str) -> i32 {
    Interrupted(number(name)).exit_status()
}

/// Has `act` be called with the name of each signal that asks for an end. What was ignored when
/// this process began stays so: a hang-up (`nohup`), Ctrl-C in the background of a script.
pub fn watch(mut act: impl FnMut(&'static str) + Send + 'static) -> Result<()> {
    let heard: Vec<_> = ALL.into_iter().filter(|(signal, _)| is_heard(*signal)).collect();
    let signals = Signals::new(heard.iter().map(|(signal, _)| signal));
    let mut signals = signals.context("no way to hear of signals")?;
    let wait = move || {
        for signal in signals.forever() {
            let named = heard.iter().find(|(other, _)| *other == signal);
            act(named.map_or("a signal", |(_, name)| name));
        }
    };
    host::thread::spawn("signals", wait).map(drop).context("no thread for signals")
}

/// Reports whether this process does not ignore a signal: a handler would change that, for a child
/// as well.
pub fn is_heard(signal: i32) -> bool {
    let status = std::fs::read_to_string("/proc/self/status");
    status.map_or(true, |text| !has(ignored(&text), signal))
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
mod tests;
