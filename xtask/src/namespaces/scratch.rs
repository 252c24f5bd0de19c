//! A folder for files of a run.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

/// A folder that is gone with this.
pub(super) struct Scratch(pub(super) PathBuf);

impl Scratch {
    pub(super) fn new() -> Result<Scratch> {
        let folder = std::env::temp_dir().join(format!("rdma-conn-{}", std::process::id()));
        fs::create_dir(&folder).with_context(|| format!("making {}", folder.display()))?;
        Ok(Scratch(folder))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(Path::new(&self.0));
    }
}
