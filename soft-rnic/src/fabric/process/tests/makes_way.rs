//! Threads that wait for what another one copies, or takes, make way for it.

use super::*;
use crate::fabric::process::incoming::MAKES_WAY;
use crate::fabric::process::incoming::progress::MADE_WAY;
use crate::fabric::process::progress_thread;
use crate::peers::process::side::FetchState;

/// A device of its own, which takes what the peer sends.
fn device_of(peer: &Wild) -> Arc<Device> {
    let device = device_of_its_own(1 << 51);
    peers(&device).progress.lock().add(Arc::clone(&peer.pair));
    device
}

fn peers(device: &Device) -> &PeerProcesses {
    device.peers.as_ref().unwrap()
}

fn fetch(device: &Device, state: FetchState) {
    peers(device).progress.lock().sides[0].fetch = state;
}

/// Returns the number of times that this thread makes way in an act.
fn makes_way_in(act: impl FnOnce()) -> u32 {
    MADE_WAY.set(0);
    act();
    MADE_WAY.get()
}

/// Returns the number of times that it makes way in `n` polls.
fn polls(device: &Arc<Device>, n: u32) -> u32 {
    makes_way_in(|| (0..n).for_each(|_| device.progress_from_poll()))
}

#[test]
fn one_in_so_many_polls_that_find_nothing_makes_way_for_a_copy() {
    let peer = Wild::at_slot(slot(94), rustix::process::getpid());
    let device = device_of(&peer);
    assert_eq!(polls(&device, 2 * MAKES_WAY), 0, "nothing is copied");
    fetch(&device, FetchState::UnderWay);
    assert_eq!([polls(&device, MAKES_WAY - 1), polls(&device, 1)], [0, 1]);
    assert_eq!(polls(&device, 3 * MAKES_WAY), 3);
    // One that finds something begins anew: an answer to a queue pair that is gone.
    assert_eq!(polls(&device, MAKES_WAY - 1), 0);
    peer.rings.scribble_reply(0, [0, 1, 0, 0]);
    assert_eq!([polls(&device, MAKES_WAY), polls(&device, 1)], [0, 1]);
    fetch(&device, FetchState::Nothing);
    assert_eq!(polls(&device, 2 * MAKES_WAY), 0, "the copy is over");
}

#[test]
fn polls_make_way_for_a_peer_that_reads_a_message_where_it_lies() {
    let peer = Wild::at_slot(slot(95), rustix::process::getpid());
    let device = device_of(&peer);
    peer.rings.reads.store(1, Ordering::Relaxed);
    assert_eq!(polls(&device, 2 * MAKES_WAY), 2);
    peer.rings.reads.store(2, Ordering::Relaxed);
    assert_eq!(polls(&device, 2 * MAKES_WAY), 0, "it has read it");
}

/// A thread that finds another one at work waits for what that one takes, if it is one of the
/// device's: one of the program's may hold on to its processor.
#[test]
fn polls_yield_to_the_progress_thread_and_to_workers() {
    let peer = Wild::at_slot(slot(96), rustix::process::getpid());
    let device = device_of(&peer);
    let peers = peers(&device);
    let works = || peers.progress_thread_works();
    let at_work = peers.progress.lock();
    assert_eq!(polls(&device, 10), 0, "a thread of the program is at work");
    peers.says_that_it_works(true);
    assert_eq!(polls(&device, 10), 10);
    peers.says_that_it_works(false);
    assert_eq!(polls(&device, 10), 0);
    // Each of both says so while it tries, and no longer: of two, one makes way for the other.
    assert_eq!(makes_way_in(|| device.progress_of_worker()), 1);
    assert!(!works(), "the worker has done it");
    assert_eq!(makes_way_in(|| _ = progress_thread::take(&device, peers)), 1);
    assert!(!works(), "the progress thread has done it");
    drop(at_work);
}
