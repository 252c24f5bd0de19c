//! Outcomes of commands.

use std::io::{ErrorKind, Write};
use std::sync::atomic::{AtomicBool, Ordering};

use rdma_conn::send_recv::{Config, ConfigError};

/// Prints a line on standard output.
macro_rules! say {
    ($($line:tt)*) => { $crate::outcome::say(format_args!($($line)*)) };
}

/// Writes a line to standard error.
macro_rules! remark {
    ($($line:tt)*) => { $crate::outcome::remark(format_args!($($line)*)) };
}

/// Writes a line to standard error, for the macro of this name. Where that is closed, as a terminal
/// may be whose program still runs, the line is lost; the work has to continue, and to end, all the
/// same.
pub(crate) fn remark(line: std::fmt::Arguments<'_>) {
    let mut stderr = std::io::stderr().lock();
    // Relaxed: the lock orders it.
    if !HAS_ENDED.load(Ordering::Relaxed) {
        let _ = stderr.write_all(format!("{line}\n").as_bytes());
    }
}

/// True once the last line is written.
static HAS_ENDED: AtomicBool = AtomicBool::new(false);

/// Writes why the process ends, as the last line: what other threads report afterwards is lost.
pub(crate) fn last_remark(line: std::fmt::Arguments<'_>) {
    let _stderr = std::io::stderr().lock();
    remark(line);
    HAS_ENDED.store(true, Ordering::Relaxed);
}

/// Ends the process here, whatever other threads do, and says why in the last line.
pub(crate) fn exit(status: i32, line: std::fmt::Arguments<'_>) -> ! {
    last_remark(line);
    std::process::exit(status)
}

/// Prints a line on standard output, for the macro of this name. A reader that has
/// gone (`| head -1`) has all that it wants: that ends the program, and is no failure.
pub(crate) fn say(line: std::fmt::Arguments<'_>) {
    let text = line.to_string();
    // A table has several lines; what its cells hold may be a peer's.
    let lines: Vec<String> = text.split('\n').map(printable).collect();
    say_all((lines.join("\n") + "\n").as_bytes());
}

/// Prints text of this program on standard output, unchanged.
pub(crate) fn say_all(text: &[u8]) {
    let Err(e) = std::io::stdout().lock().write_all(text) else { return };
    if e.kind() == ErrorKind::BrokenPipe {
        std::process::exit(0);
    }
    exit(1, format_args!("rdma-conn: cannot write to standard output: {e}"))
}

/// A text that may be a peer's, for a terminal: characters that would control it are
/// written out, ends of lines as well.
pub(crate) fn printable(text: &str) -> String {
    // As JSON has them, which goes this way, too.
    let shown = |c: char| match c {
        '\n' => "\\n".into(),
        c if c.is_control() => format!("\\u{:04x}", u32::from(c)),
        c => c.to_string(),
    };
    text.chars().map(shown).collect()
}

/// Result of a command.
pub(crate) type Outcome = Result<(), Failure>;
/// Reason for which a command failed, in one line.
pub(crate) type Failure = anyhow::Error;

/// A request that cannot be served as it stands: exit status 2.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct Usage(pub(crate) String);

/// A [`Usage`] failure.
pub(crate) fn usage(text: impl Into<String>) -> Failure {
    Usage(text.into()).into()
}

/// Turns an error into a [`Usage`] failure: the value is from the command line.
pub(crate) fn as_usage(error: impl std::fmt::Display) -> Failure {
    usage(error.to_string())
}

/// An invalid configuration, by the flags that it is made of.
pub(crate) fn by_flag(error: &ConfigError, config: &Config) -> Failure {
    let most = Config::MAX_MESSAGE_BYTES;
    match error.field {
        "message_bytes" if config.pack_bytes != config.message_bytes => {
            size_over(error.value, most.into())
        }
        // Buffers are as long as a pack is.
        "message_bytes" | "pack_bytes" => {
            usage(format!("--pack {}: it may be 0 (off), or 8 to {most}", error.value))
        }
        _ => {
            let windows =
                [("unacked", config.unacked.into()), ("recv_depth", config.recv_depth.into())];
            by_flag_within(error, &windows)
        }
    }
}

/// A message that is too long.
pub(crate) fn size_over(size: u64, most: u64) -> Failure {
    usage(format!("--size {size}: it may be up to {most}"))
}

/// As [`by_flag`], for whichever configuration; the rule may speak of these of its fields.
pub(crate) fn by_flag_within(error: &ConfigError, bounds: &[(&str, u64)]) -> Failure {
    let flag = |field: &str| match field {
        "message_bytes" => "--size".to_owned(),
        field => format!("--{}", field.replace('_', "-")),
    };
    let rule = error.rule.replace("2^32", "4294967296");
    let rule = bounds.iter().fold(rule, |rule, (field, value)| {
        rule.replace(field, &format!("{} ({value})", flag(field)))
    });
    usage(format!("{} {}: it may be {rule}", flag(error.field), error.value))
}

#[cfg(test)]
mod tests;
