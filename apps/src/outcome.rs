//! How commands end.

use std::io::{ErrorKind, Write};

/// Prints a line on standard output.
macro_rules! say {
    ($($line:tt)*) => { $crate::outcome::say(format_args!($($line)*)) };
}

/// Prints a line on standard output, for the macro of this name. A reader that has
/// gone (`| head -1`) has all that it wants: that ends the program, and is no failure.
pub(crate) fn say(line: std::fmt::Arguments<'_>) {
    let text = line.to_string();
    // A table has several lines; what its cells hold may be a peer's.
    let lines: Vec<String> = text.split('\n').map(printable).collect();
    let Err(e) = writeln!(std::io::stdout().lock(), "{}", lines.join("\n")) else { return };
    if e.kind() == ErrorKind::BrokenPipe {
        std::process::exit(0);
    }
    eprintln!("rdma-conn: cannot write to standard output: {e}");
    std::process::exit(1);
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

/// What a command answers.
pub(crate) type Outcome = Result<(), Failure>;
/// Why a command failed, in one line.
pub(crate) type Failure = anyhow::Error;

/// A request that cannot be served as it stands: exit status 2.
#[derive(Debug)]
pub(crate) struct Usage(pub(crate) String);

impl std::fmt::Display for Usage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Usage {}

/// A [`Usage`] failure.
pub(crate) fn usage(text: impl Into<String>) -> Failure {
    Usage(text.into()).into()
}

/// Turns an error into a [`Usage`] failure: the value came from the command line.
pub(crate) fn as_usage(error: impl std::fmt::Display) -> Failure {
    usage(error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peers_text_cannot_drive_a_terminal() {
        let text = "\x1b[2J\nroot# \u{9b}1m\u{7f}";
        assert_eq!(printable(text), r"\u001b[2J\nroot# \u009b1m\u007f");
        assert_eq!(printable("5 µs · 3 × 2 B │"), "5 µs · 3 × 2 B │");
    }
}
