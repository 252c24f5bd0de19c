//! Memory of a peer that is mapped here.

use core::sync::atomic::AtomicU64;
use std::os::fd::{AsFd, AsRawFd};

use std::sync::Weak;

use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, fstat, ftruncate, memfd_create};

use super::reading::{ask, run, verdict};
use super::*;
use crate::fabric::process::gather::{KEPT_SOURCES, SPARE};
use crate::memory::published::{InFile, PublishedRegion};
use crate::objects::deferred_work::DeferredWork;
use crate::peers::process::region::MappedWindow;
use crate::peers::process::regions::Regions;
use crate::peers::process::ring::{PayloadLocation, WANTS_REPLY, reply_at};
use crate::peers::process::windows::WINDOWS_PER_PEER;
use crate::queues::outcome::PeerReply;

/// A memory file as others may map it.
pub(super) fn memory(bytes: u64) -> OwnedFd {
    let file = memfd_create("test", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
    ftruncate(&file, bytes).unwrap();
    fcntl_add_seals(file.as_fd(), SealFlags::SHRINK).unwrap();
    file
}

/// A registration of the whole of a file.
pub(super) fn whole(file: &OwnedFd) -> PublishedRegion {
    let stat = fstat(file).unwrap();
    let (fd, inode, length) = (file.as_raw_fd() as u32, stat.st_ino, stat.st_size as u64);
    let in_file = InFile { fd, inode, offset: 0, split: length, second: 0 };
    PublishedRegion { length, file: Some(in_file), ..PublishedRegion::default() }
}

/// A key of the peer's region with this number: its directory has no secrets.
fn key(nth: u32) -> u32 {
    nth << 14 | 1
}

/// The peer registers the whole of a file, and has it mapped.
fn mapped(peer: &Wild, key: u32, file: &OwnedFd) -> Weak<MappedWindow> {
    peer.directory.publish(key, &whole(file));
    let published = peer.pair.theirs.find(key).unwrap();
    Arc::downgrade(&peer.pair.window(key, &published).unwrap())
}

#[test]
fn long_memory_that_is_registered_no_more_is_soon_given_back() {
    let peer = Wild::new();
    let registered = |nth| mapped(&peer, key(nth), &memory(256 << 20));
    let stays = registered(1);
    let gone: Vec<_> = (2..20)
        .map(|nth| {
            let window = registered(nth);
            peer.directory.withdraw(key(nth));
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
    crate::objects::device::default_device().bury(&peer.pair);
    assert_eq!(window.strong_count(), 0);
}

/// Each registration of a key replaces the mapping of the one before. A message of three pieces
/// is gathered out of mappings that all stay until its last byte is copied.
#[test]
fn a_reregistered_key_unmaps_no_piece_of_a_message() {
    const PIECE: u32 = 16 << 10;
    const MESSAGES: u32 = 500;
    let mut peer = Wild::at_slot(slot(33), rustix::process::getpid());
    let qp = connected_to(ibv_qp_type::IBV_QPT_RC, far(slot(33)));
    peer.receive_from(&qp);
    let file = memory(PIECE.into());
    // Where it lies, should it be fetched.
    let addr = vec![7_u8; PIECE as usize].leak().as_ptr().expose_provenance() as u64;
    let published = PublishedRegion { addr, ..whole(&file) };
    let keys = [1, 2, 1].map(key);
    let piece = |key| ibv_sge { addr: 0, length: PIECE, lkey: key };
    keys.iter().for_each(|key| peer.directory.publish(*key, &published));
    // SAFETY: the list is shorter than the ring of data.
    unsafe { peer.rings.data().cast::<[ibv_sge; 3]>().write(keys.map(piece)) };
    let kinds = u32::from_le_bytes([0, WANTS_REPLY, PayloadLocation::Regions as u8, 1]);
    let parties = u64::from(qp.num) | u64::from(far(slot(33))) << 32;
    let generation = u64::from(qp.responder.lock().generation);
    let (is_over, rounds) = (AtomicBool::new(false), AtomicU64::new(0));
    let (directory, mut done, mut fetched) = (&peer.directory, 0, 0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                keys.iter().for_each(|key| directory.publish(*key, &published));
                rounds.fetch_add(1, Ordering::Relaxed);
            }
        });
        let _over = SetOnDrop(&is_over);
        for at in 0..MESSAGES {
            // The other thread has a processor.
            let seen = rounds.load(Ordering::Relaxed);
            while rounds.load(Ordering::Relaxed) == seen {
                host::thread::yield_now();
            }
            peer.rings.replies_read.store(at, Ordering::Relaxed);
            let words = [u64::from(kinds) << 32, parties, generation | u64::from(at) << 32];
            let [kinds, parties, numbered] = words;
            let len = u64::from(3 * PIECE) << 32;
            peer.rings.scribble_request(at, [kinds, parties, numbered, len, 0, 3, 0, 0]);
            let mut deferred = DeferredWork::default();
            let device = crate::objects::device::default_device();
            peer.progress.run(&device, &mut deferred);
            // Where the key's version is not the one that was mapped, its bytes are fetched.
            if let Some(mut fetch) = peer.progress.next_fetch(|_| true) {
                let is_there = fetch.run();
                peer.progress.is_over(*fetch, is_there);
                peer.progress.run(&device, &mut deferred);
                fetched += 1;
            }
            deferred.run();
            let reply = reply_at(&peer.pair.outgoing, at).unwrap().unwrap();
            done += u32::from(reply.verdict == PeerReply::Done);
        }
    });
    assert_eq!(done, MESSAGES);
    assert!(fetched < MESSAGES, "none was gathered out of mappings");
}

/// More than the kernel grants mappings (`vm.max_map_count`, 65,530).
#[test]
fn regions_beyond_the_mapping_limit_are_mapped_in_turn() {
    let peer = Wild::new();
    let file = memory(4096);
    let published = whole(&file);
    let mapped = |nth| {
        let key = key(nth);
        peer.directory.publish(key, &published);
        let published = peer.pair.theirs.find(key).unwrap();
        peer.pair.window(key, &published).is_some()
    };
    let failed = (1..=66_000).find(|nth| !mapped(*nth));
    assert_eq!(failed, None);
    assert_eq!(peer.pair.windows(), WINDOWS_PER_PEER);
    assert!(mapped(1), "it was unmapped, and is mapped again");
}

#[test]
fn the_least_recently_used_region_is_unmapped_first() {
    let peer = Wild::new();
    let file = memory(4096);
    let stays = mapped(&peer, key(1), &file);
    let goes = mapped(&peer, key(2), &file);
    let published = peer.pair.theirs.find(key(1)).unwrap();
    for nth in 3..WINDOWS_PER_PEER as u32 + 2 {
        mapped(&peer, key(nth), &file);
        peer.pair.window(key(1), &published).unwrap();
    }
    assert_eq!((stays.strong_count(), goes.strong_count()), (1, 0));
}

/// A queue pair that names a region again which was unmapped meanwhile has it mapped again.
#[test]
fn an_unmapped_region_is_mapped_again_on_use() {
    let peer = Wild::new();
    let file = memory(4096);
    let mut regions = Regions::default();
    let window = mapped(&peer, key(1), &file);
    let version = peer.pair.theirs.version(key(1)).unwrap();
    assert!(regions.is_mapped(&peer.pair, key(1), version));
    // Two others are at hand.
    for key in [2, 3].map(key) {
        mapped(&peer, key, &file);
        let version = peer.pair.theirs.version(key).unwrap();
        assert!(regions.is_mapped(&peer.pair, key, version));
    }
    peer.pair.forget_windows();
    assert_eq!(window.strong_count(), 0);
    assert!(regions.is_mapped(&peer.pair, key(1), version));
}

#[test]
fn regions_beyond_the_byte_limit_are_unmapped_in_turn() {
    let peer = Wild::new();
    let file = memory(6 << 40);
    let windows: Vec<_> = (1..=4).map(|nth| mapped(&peer, key(nth), &file)).collect();
    let kept: Vec<_> = windows.iter().map(|window| window.strong_count()).collect();
    assert_eq!(kept, [0, 0, 1, 1]);
    // Longer than all that it may have: it is attached to.
    let file = memory(17 << 40);
    peer.directory.publish(key(5), &whole(&file));
    let published = peer.pair.theirs.find(key(5)).unwrap();
    assert!(peer.pair.window(key(5), &published).is_none());
    assert_eq!(peer.pair.windows(), 2, "nothing was unmapped for it");
}

/// However many regions it lies in, and however long it is.
#[test]
fn regions_and_memory_kept_between_messages_are_bounded() {
    let mut peer = Wild::at_slot(slot(97), rustix::process::getpid());
    let qp = connected_to(ibv_qp_type::IBV_QPT_RC, far(slot(97)));
    peer.receive_from(&qp);
    let (file, keys) = (memory(4096), (1..=6).map(key));
    let piece = |key| {
        peer.directory.publish(key, &whole(&file));
        ibv_sge { addr: 0, length: 64, lkey: key }
    };
    let pieces: Vec<_> = keys.map(piece).collect();
    ask(&mut peer, &qp, &pieces, 6 * 64);
    run(&mut peer);
    assert_eq!(verdict(&peer), Some(PeerReply::Done));
    let (side, mut spare) = (&mut peer.progress.sides[0], Vec::new());
    assert_eq!(side.sources.len(), KEPT_SOURCES);
    for len in [SPARE, SPARE + 1] {
        side.buffer = vec![0; len];
        side.tidy(&mut spare);
        assert_eq!((side.buffer.capacity(), spare.len()), (0, SPARE));
    }
}
