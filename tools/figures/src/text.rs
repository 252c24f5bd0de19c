//! Bounded reads of text files.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use anyhow::{Context, Result, bail};

/// Reads a text file of at most `most` bytes.
///
/// # Errors
/// The file cannot be read, is longer, or is not UTF-8.
pub(super) fn read(path: &Path, most: u64) -> Result<String> {
    let mut text = String::new();
    let file = File::open(path).with_context(|| path.display().to_string())?;
    let read = file.take(most + 1).read_to_string(&mut text);
    read.with_context(|| path.display().to_string())?;
    if text.len() as u64 > most {
        bail!("{}: it has more than {most} bytes", path.display());
    }
    Ok(text)
}
