//! Messages that go through the ring of data, and those that stay where they are; the thread to
//! which a poll makes way.

use std::os::fd::IntoRawFd;

use super::*;
use crate::fabric::process::out::{COPIED, COPIED_UNMAPPED};
use crate::objects::deferred_work::DeferredWork;
use crate::peers::process::ring::{PayloadLocation, RingRequest, read_request};

/// Slot of the made-up peer.
const COPIES: u32 = 67;

const LEN: usize = 2 * COPIED_UNMAPPED as usize;

/// Memory that stays: of this process alone, or of a file that others can map.
fn memory(is_shared: bool) -> *mut u8 {
    use rustix::mm::{MapFlags, ProtFlags, mmap};
    if !is_shared {
        return vec![7_u8; LEN].leak().as_mut_ptr();
    }
    let file = windows::memory(LEN as u64);
    let prot = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: a new mapping, which stays.
    let at = unsafe { mmap(null_mut(), LEN, prot, MapFlags::SHARED, &file, 0) }.unwrap();
    // The device finds the file by a descriptor of the process.
    let _ = file.into_raw_fd();
    at.cast()
}

fn register(qp: &Arc<Qp>, at: *mut u8, len: usize) -> u32 {
    // SAFETY: memory that stays; the queue pair is alive, and so is the region.
    unsafe { (*(crate::table().reg_mr)((*qp.as_abi()).pd, at.cast(), len, 1)).lkey }
}

/// Returns the place of the data of a SEND of `len` bytes when it is put into the ring to a peer.
fn location(peer: &Wild, qp: &Arc<Qp>, (at, lkey): (*mut u8, u32), len: u64) -> PayloadLocation {
    let index = qp.sq.lock().remote.as_ref().map_or(0, |remote| remote.next);
    // SAFETY: a request on a queue pair that is alive, as the region is.
    unsafe {
        let mut sge = ibv_sge { addr: at as u64, length: len as u32, lkey };
        let mut wr: ibv_send_wr = core::mem::zeroed();
        (wr.opcode, wr.sg_list, wr.num_sge) = (ibv_wr_opcode::IBV_WR_SEND, &mut sge, 1);
        assert_eq!(ibv_post_send(qp.as_abi(), &mut wr, &mut null_mut()), 0);
    }
    let mut request = RingRequest::default();
    assert!(read_request(&peer.pair.outgoing, index, &mut request).unwrap());
    assert_eq!(u64::from(request.len), len);
    request.location
}

#[test]
fn long_messages_stay_where_the_peer_can_map_them() {
    use PayloadLocation::{Data, Regions};
    let peer = Wild::at_slot(slot(COPIES), rustix::process::getpid());
    let qp = connected_to(ibv_qp_type::IBV_QPT_RC, far(slot(COPIES)));
    peer.known();
    peer.receive_from(&qp);
    // As when the first process is met.
    let device = crate::objects::device::default_device();
    device.mrs.publish_all(device.peers.as_ref().unwrap());
    for (is_shared, lens) in [
        (true, [(COPIED, Data), (COPIED + 1, Regions), (COPIED_UNMAPPED, Regions)]),
        (false, [(COPIED + 1, Data), (COPIED_UNMAPPED, Data), (COPIED_UNMAPPED + 1, Regions)]),
    ] {
        let at = memory(is_shared);
        let lkey = register(&qp, at, LEN);
        for (len, expected) in lens {
            let found = location(&peer, &qp, (at, lkey), len);
            assert_eq!(found, expected, "{len} bytes, shared: {is_shared}");
        }
    }
}

#[test]
fn empty_polls_yield_to_a_peer_polling_on_their_processor() {
    let mut peer = Wild::at_slot(slot(COPIES + 1), rustix::process::getpid());
    let device = crate::objects::device::default_device();
    let peers = device.peers.as_ref().unwrap();
    // A thread that stays where it is.
    let here = peers.publish_processor();
    let mut only = rustix::thread::CpuSet::new();
    only.set(here as usize - 1);
    rustix::thread::sched_setaffinity(None, &only).unwrap();
    assert_eq!(peers.publish_processor(), here);
    let mut yields = |on: u32| {
        peer.directory.processor.store(on, Ordering::Relaxed);
        let mut poll = || {
            let mut deferred = DeferredWork::default();
            let any = peer.progress.run_for_poll(&device, &mut deferred);
            assert!(!any);
            peer.progress.makes_way(peers)
        };
        (0..256).filter(|_| poll()).count()
    };
    assert_eq!([yields(here), yields(here + 1), yields(0)], [4, 0, 0]);
}
