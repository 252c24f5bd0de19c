//! Facts of the build: a figure means little without them.

/// The version of the crate.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");
/// The commit, `-dirty` when the work tree differed; `unknown` outside a repository.
pub const COMMIT: &str = env!("RDMA_CONN_COMMIT");
/// The profile, and its optimisation level.
pub const PROFILE: &str = env!("RDMA_CONN_PROFILE");
/// The target triple.
pub const TARGET: &str = env!("RDMA_CONN_TARGET");
/// The target features that the compiler was allowed to use.
pub const TARGET_FEATURES: &str = env!("RDMA_CONN_TARGET_FEATURES");

/// All of it in one line.
///
/// ```
/// println!("{}", rdma_conn::build::summary());
/// ```
#[must_use]
pub fn summary() -> String {
    format!("{VERSION} (commit {COMMIT}, {PROFILE}, {TARGET}, features {TARGET_FEATURES})")
}
