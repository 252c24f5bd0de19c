//! Outcomes of commands.

use std::io::{ErrorKind, Write};
use std::sync::atomic::{AtomicBool, Ordering};

/// Prints a line on standard output.
#[macro_export]
macro_rules! say {
    ($($line:tt)*) => { $crate::outcome::say(format_args!($($line)*)) };
}

/// Writes a line to standard error.
#[macro_export]
macro_rules! remark {
    ($($line:tt)*) => { $crate::outcome::remark(format_args!($($line)*)) };
}

/// Writes a line to standard error, for the macro of this name. Where that is closed, as a terminal
/// may be whose program still runs, the line is lost; the work has to continue, and to end, all the
/// same.
pub fn remark(line: std::fmt::Arguments<'_>) {
    let mut stderr = std::io::stderr().lock();
    // Relaxed: the lock orders it.
    if !HAS_ENDED.load(Ordering::Relaxed) {
        let _ = stderr.write_all(format!("{line}\n").as_bytes());
    }
}

/// True once the last line is written.
static HAS_ENDED: AtomicBool = AtomicBool::new(false);

/// Writes why the process ends, as the last line: what other threads report afterwards is lost.
pub fn last_remark(line: std::fmt::Arguments<'_>) {
    let _stderr = std::io::stderr().lock();
    remark(line);
    HAS_ENDED.store(true, Ordering::Relaxed);
}

/// Ends the process here, whatever other threads do, and says why in the last line.
pub fn exit(status: i32, line: std::fmt::Arguments<'_>) -> ! {
    last_remark(line);
    std::process::exit(status)
}

/// Prints a line on standard output, for the macro of this name. A reader that has
/// gone (`| head -1`) has all that it wants: that ends the program, and is no failure.
pub fn say(line: std::fmt::Arguments<'_>) {
    let text = line.to_string();
    // A table has several lines; what its cells hold may be a peer's.
    let lines: Vec<String> = text.split('\n').map(printable).collect();
    say_all((lines.join("\n") + "\n").as_bytes());
}

/// Prints text of this program on standard output, unchanged.
pub fn say_all(text: &[u8]) {
    let Err(e) = std::io::stdout().lock().write_all(text) else { return };
    if e.kind() == ErrorKind::BrokenPipe {
        std::process::exit(0);
    }
    exit(1, format_args!("rdma-conn: cannot write to standard output: {e}"))
}

/// A text that may be a peer's, for a terminal: characters that would control it are
/// written out, ends of lines as well.
pub fn printable(text: &str) -> String {
    // As JSON has them, which goes this way, too.
    let shown = |c: char| match c {
        '\n' => "\\n".into(),
        c if c.is_control() => format!("\\u{:04x}", u32::from(c)),
        c => c.to_string(),
    };
    text.chars().map(shown).collect()
}

/// Result of a command.
pub type CommandResult = Result<(), CommandError>;
/// Reason for which a command failed, in one line.
pub type CommandError = anyhow::Error;

/// A request that cannot be served as it stands: exit status 2.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Usage(pub(crate) String);

/// A [`Usage`] failure.
pub fn usage(text: impl Into<String>) -> CommandError {
    Usage(text.into()).into()
}

/// Turns an error into a [`Usage`] failure: the value is from the command line.
pub fn as_usage(error: impl std::fmt::Display) -> CommandError {
    usage(error.to_string())
}

#[cfg(test)]
mod tests;
