//! How commands end.

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
