//! Modes of directories, which they get when they are filled.

use std::collections::{BTreeMap, HashSet};

use base::outcome::CommandError;

use super::super::place::Root;

/// Modes of directories, and their entries, by path.
pub(super) type Modes = BTreeMap<Vec<u8>, (u32, u32)>;

/// The directories that something of this name is in.
pub(super) fn parents(name: &[u8]) -> impl Iterator<Item = &[u8]> {
    (0..name.len()).filter(move |at| name[*at] == b'/').map(move |at| &name[..at])
}

/// The modes of those directories that are `open`, and the others'.
pub(super) fn part<'a>(modes: Modes, open: impl Iterator<Item = &'a [u8]>) -> (Modes, Modes) {
    let open: HashSet<&[u8]> = open.collect();
    modes.into_iter().partition(|(name, _)| open.contains(&**name))
}

/// Gives directories their modes, the deepest first: one may be closed to us then. Returns those
/// that have other ones, by name and entry, and why.
pub(super) fn set_modes(root: &Root, modes: Modes) -> Vec<(Vec<u8>, u32, CommandError)> {
    let set = |name: &[u8], mode| root.place(name)?.set_directory_mode(mode);
    let each = |(name, (mode, entry)): (Vec<u8>, (u32, u32))| {
        set(&name, mode).err().map(|why| (name, entry, why))
    };
    modes.into_iter().rev().filter_map(each).collect()
}
