//! How commands end.

use std::io::{ErrorKind, Write};

/// Prints a line on standard output.
macro_rules! say {
    ($($line:tt)*) => { $crate::outcome::say(format_args!($($line)*)) };
}

/// Prints a line on standard output, for the macro of this name. A reader that has
/// gone (`| head -1`) has all that it wants: that ends the program, and is no failure.
pub(crate) fn say(line: std::fmt::Arguments<'_>) {
    let Err(e) = writeln!(std::io::stdout().lock(), "{line}") else { return };
    if e.kind() == ErrorKind::BrokenPipe {
        std::process::exit(0);
    }
    eprintln!("rdma-conn: cannot write to standard output: {e}");
    std::process::exit(1);
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
