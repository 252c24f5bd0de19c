//! A folder for files of a run.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

/// A folder that is gone with this.
pub(super) struct ScratchFolder(pub(super) PathBuf);

impl ScratchFolder {
    pub(super) fn new() -> Result<ScratchFolder> {
        let folder = std::env::temp_dir().join(format!("rdma-conn-{}", std::process::id()));
        fs::create_dir(&folder).with_context(|| format!("making {}", folder.display()))?;
        Ok(ScratchFolder(folder))
    }
}

impl Drop for ScratchFolder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(Path::new(&self.0));
    }
}
