//! Memory of a peer that is mapped here.

use std::os::fd::{AsFd, AsRawFd};
use std::sync::Weak;

use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, fstat, ftruncate, memfd_create};

use super::*;
use crate::process::directory::InFile;
use crate::process::region::Window;

/// A memory file as others may map it.
fn memory(bytes: u64) -> OwnedFd {
    let file = memfd_create("test", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
    ftruncate(&file, bytes).unwrap();
    fcntl_add_seals(file.as_fd(), SealFlags::SHRINK).unwrap();
    file
}

/// The peer registers the whole of a file, and has it mapped.
fn mapped(peer: &Wild, key: u32, file: &OwnedFd) -> Weak<Window> {
    let stat = fstat(file).unwrap();
    let (fd, inode, length) = (file.as_raw_fd() as u32, stat.st_ino, stat.st_size as u64);
    let place = InFile { fd, inode, offset: 0, split: length, second: 0 };
    peer.directory.tell(key, &Told { length, file: Some(place), ..Told::default() });
    let told = peer.pair.theirs.find(key).unwrap();
    Arc::downgrade(&peer.pair.window(key, &told).unwrap())
}

#[test]
fn long_memory_that_is_registered_no_more_is_soon_given_back() {
    let peer = Wild::new();
    let registered = |key| mapped(&peer, key, &memory(256 << 20));
    let stays = registered(1);
    let gone: Vec<_> = (2..20)
        .map(|key| {
            let window = registered(key);
            peer.directory.untell(key);
            window
        })
        .collect();
    // That which is registered is as long as two of them.
    let kept = gone.iter().filter(|window| window.strong_count() > 0).count();
    assert!(kept <= 2, "{kept}");
    assert_eq!(stays.strong_count(), 1);
}

#[test]
fn memory_of_a_peer_that_is_lost_is_given_back() {
    let peer = Wild::new();
    let window = mapped(&peer, 1, &memory(4096));
    assert_eq!(window.strong_count(), 1);
    crate::device::default_device().bury(&peer.pair);
    assert_eq!(window.strong_count(), 0);
}
