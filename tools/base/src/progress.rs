//! Progress on standard error, where a person looks at it.

use std::io::IsTerminal;
use std::time::Duration;

use host::channel::{RecvError, channel};
use indicatif::{ProgressBar, ProgressState, ProgressStyle};

use crate::outcome::{CommandError, CommandResult, printable};

/// A bar of `length` steps; nothing at all where standard error is no terminal.
pub fn bar(length: u64, json: bool) -> ProgressBar {
    if json || !has_bar() {
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template("{spinner} [{bar:30}] {pos}/{len} {msg} ({eta} left)");
    let bar =
        ProgressBar::new(length).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    bar.enable_steady_tick(Duration::from_millis(200));
    bar
}

/// Does `one` for each case under a bar with its label, until a case fails or says why it is the
/// last.
pub fn each<C>(
    json: bool,
    cases: Vec<C>,
    label: impl Fn(&C) -> String,
    mut one: impl FnMut(C, &ProgressBar) -> Result<Option<CommandError>, CommandError>,
) -> CommandResult {
    let bar = bar(cases.len() as u64, json);
    let mut outcome = Ok(());
    for case in cases {
        bar.set_message(label(&case));
        if let Err(e) | Ok(Some(e)) = one(case, &bar) {
            outcome = Err(e);
            break;
        }
        bar.inc(1);
    }
    bar.finish_and_clear();
    outcome
}

/// Shows the progress of a stream, of `length` bytes if that is known, with its rate.
pub fn stream(length: Option<u64>, json: bool) -> ProgressBar {
    if let Some(length) = length {
        return bytes(length, json);
    }
    let spinner = bar(0, json);
    let template = "{spinner} {bytes} {binary_bytes_per_sec}";
    if let Ok(style) = ProgressStyle::with_template(template) {
        spinner.set_style(style);
    }
    spinner
}

/// A bar of `bytes`, with their rate.
pub fn bytes(bytes: u64, json: bool) -> ProgressBar {
    let bar = bar(bytes, json);
    let template = "{spinner} [{bar:30}] {bytes}/{total_bytes} {binary_bytes_per_sec} ({eta} left)";
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style);
    }
    bar
}

/// A bar of `bytes`, with their rate, and with `count` in words: how much of the work is done, as
/// many small files are few bytes.
pub fn counted(
    bytes: u64,
    json: bool,
    count: impl Fn() -> String + Send + Sync + Clone + 'static,
) -> ProgressBar {
    let bar = bar(bytes, json);
    let template = "{spinner} [{wide_bar}] {bytes}/{total_bytes}, {count}, {binary_bytes_per_sec} ({eta} left)";
    if let Ok(style) = ProgressStyle::with_template(template) {
        let write = move |_: &ProgressState, out: &mut dyn std::fmt::Write| {
            // A bar that was not drawn is drawn again.
            let _ = out.write_str(&count());
        };
        bar.set_style(style.with_key("count", write));
    }
    bar
}

/// Interval of the lines that report progress.
const NOW_AND_THEN: Duration = Duration::from_secs(5);

/// Does `work`; meanwhile a line is said now and then on standard error, unless results are for
/// programs.
pub fn told<T>(json: bool, mut line: impl FnMut() -> String + Send, work: impl FnOnce() -> T) -> T {
    match json {
        true => work(),
        false => meanwhile(NOW_AND_THEN, || remark!("{}", printable(&line())), work),
    }
}

/// Reports whether a bar shows the progress.
pub fn has_bar() -> bool {
    std::io::stderr().is_terminal()
}

/// Does `work`, and `other` from time to time until that is done, if there is a thread for it.
fn meanwhile<T>(every: Duration, mut other: impl FnMut() + Send, work: impl FnOnce() -> T) -> T {
    host::thread::scope(|scope| {
        let (working, is_over) = channel::<()>();
        let others = scope.spawn(move || {
            while is_over.recv_timeout(every) == Err(RecvError::TimedOut) {
                other();
            }
        });
        drop(others);
        // Gone with the end, also if that is a panic: the thread is waited for.
        let _working = working;
        work()
    })
}

#[cfg(test)]
mod tests;
