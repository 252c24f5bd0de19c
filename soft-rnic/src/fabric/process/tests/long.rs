//! The point up to which a poll takes what a process has sent.

use super::*;
use crate::limits::LONG;
use crate::peers::process::ring::{EntryOp, PayloadLocation};

/// Slot of the made-up peer.
const LONGS: u32 = 71;

/// Sends a message of `len` bytes to a queue pair that does not exist.
fn send(peer: &mut Wild, len: usize) {
    let kinds = u32::from_le_bytes([EntryOp::Send as u8, 0, PayloadLocation::Regions as u8, 1]);
    let parties = 0xff_ffff | u64::from(far(slot(LONGS))) << 32;
    let words = [u64::from(kinds) << 32, parties, 0, (len as u64) << 32, 0, 1, 0, 0];
    peer.rings.scribble_request(peer.index, words);
    peer.index += 1;
}

#[test]
fn a_poll_stops_after_the_first_long_message() {
    let mut peer = Wild::at_slot(slot(LONGS), rustix::process::getpid());
    let device = crate::objects::device::default_device();
    let lens = [8, LONG, 8, LONG - 1, LONG, LONG];
    for (polls, expected) in [(true, &[2, 5, 6, 6][..]), (false, &[6, 6])] {
        let first = peer.index;
        lens.iter().for_each(|len| send(&mut peer, *len));
        for count in expected {
            let mut deferred = DeferredWork::default();
            match polls {
                true => peer.progress.run_for_poll(&device, &mut deferred),
                false => peer.progress.run(&device, &mut deferred),
            };
            deferred.run();
            let taken = peer.pair.outgoing.requests_read.load(Ordering::Relaxed) - first;
            assert_eq!(taken, *count, "polls: {polls}");
        }
    }
}
