//! The folder that cargo builds into.

use std::path::PathBuf;

use anyhow::Result;

/// Cargo's target folder.
pub(crate) fn target_folder() -> Result<PathBuf> {
    let target =
        std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| "target".into(), PathBuf::from);
    Ok(std::path::absolute(target)?)
}
