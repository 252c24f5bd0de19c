//! Memory of a size that the other end of a session chooses: an error where there is none.

use anyhow::{Result, anyhow};

/// `bytes` zeroed bytes.
pub(crate) fn scratch(bytes: u32) -> Result<Vec<u8>> {
    let bytes = bytes as usize;
    let mut room = Vec::new();
    let reserved = room.try_reserve_exact(bytes);
    reserved
        .map_err(|_| anyhow!("no memory for a message of {bytes} bytes: use a smaller --size"))?;
    room.resize(bytes, 0);
    Ok(room)
}
