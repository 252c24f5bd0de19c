//! Messages to multicast groups, between this process and peers that are made up.

use std::collections::HashSet;

use super::*;
use crate::peers::process::directory::GroupBit;
use crate::peers::process::ring::{
    DATA, EntryOp, PayloadLocation, REQUESTS, RingRequest, read_request,
};
use crate::queues::address::{GidBytes, MULTICAST_QPN};

/// First slot of the made-up peers.
const MULTICAST: u32 = 100;

/// The group of a test, which no other process has.
fn group(n: u8) -> GidBytes {
    let [a, b, c, d] = std::process::id().to_be_bytes();
    [0xff, 0x0e, 0, 0, 0, 0, 0, 0, 0, 1, a, b, c, d, 0, n]
}

/// A queue pair that sends to a group, and peers that may have members of it.
struct GroupSender<const PEERS: usize> {
    qp: Arc<Qp>,
    ah: *mut ibv_ah,
    peers: [Wild; PEERS],
    _process: Sleeper,
}

impl<const PEERS: usize> GroupSender<PEERS> {
    /// The peers have slots from this one on.
    fn to(gid: GidBytes, first: u32) -> Self {
        // No message waits for other processes to be met, by another test's thread.
        assert_eq!(crate::objects::device::default_device().take_part(), Ok(()));
        let process = Sleeper::new();
        let peers = core::array::from_fn(|n| Wild::at_slot(slot(first + n as u32), process.pid()));
        peers.iter().for_each(Wild::known);
        let qp = connected_to(ibv_qp_type::IBV_QPT_UD, 0);
        let mut attr = ibv_ah_attr { is_global: 1, port_num: 1, ..ibv_ah_attr::default() };
        attr.grh.dgid.raw = gid;
        // SAFETY: the domain is alive, and so are the attributes.
        let ah = unsafe { (crate::table().create_ah)((*qp.as_abi()).pd, &mut attr) };
        assert!(!ah.is_null());
        GroupSender { qp, ah, peers, _process: process }
    }

    /// Posts a message of no bytes; returns true if it has completed.
    fn post(&self, imm: u32) -> bool {
        // SAFETY: a request without a list, on a queue pair that is alive.
        unsafe {
            let mut wr: ibv_send_wr = core::mem::zeroed();
            wr.opcode = ibv_wr_opcode::IBV_WR_SEND_WITH_IMM;
            wr.__bindgen_anon_1.imm_data = imm;
            wr.send_flags = ibv_send_flags::IBV_SEND_SIGNALED.0;
            let (ah, remote_qpn) = (self.ah, MULTICAST_QPN);
            wr.wr.ud = ibv_send_wr__bindgen_ty_2__bindgen_ty_3 { ah, remote_qpn, remote_qkey: 1 };
            assert_eq!(ibv_post_send(self.qp.as_abi(), &mut wr, &mut null_mut()), 0);
        }
        let statuses = statuses(&self.qp);
        assert!(statuses.iter().all(|status| *status == SUCCESS), "{statuses:?}");
        !statuses.is_empty()
    }
}

impl<const PEERS: usize> GroupSender<PEERS> {
    /// A peer reads up to there.
    fn read(&self, peer: usize, all: u32) {
        self.peers[peer].rings.requests_read.store(all, Ordering::Relaxed);
    }

    /// This process looks for queue pairs that wait for room in the ring to a peer.
    fn look(&mut self, peer: usize) {
        let device = crate::objects::device::default_device();
        let mut deferred = DeferredWork::default();
        self.peers[peer].progress.run(&device, &mut deferred);
        deferred.run();
    }

    /// Expires the deadline of a full ring.
    fn expire(&self) {
        backpressure::expire(&self.qp);
    }

    /// Posts until a message waits; returns how many were sent before it.
    fn fill(&self) -> u32 {
        (0..=REQUESTS).find(|n| !self.post(*n)).expect("the ring is never full")
    }
}

/// The request at an index of the ring to a peer.
fn at(peer: &Wild, index: u32) -> Option<RingRequest> {
    let mut request = RingRequest::default();
    read_request(&peer.pair.outgoing, index, &mut request).unwrap().then_some(request)
}

#[test]
fn a_message_to_a_group_goes_to_processes_whose_filter_has_it() {
    let gid = group(1);
    let sender = GroupSender::<3>::to(gid, MULTICAST);
    let [without, with, dead] = &sender.peers;
    with.directory.publish_group(GroupBit::of(&gid), true);
    dead.directory.publish_group(GroupBit::of(&gid), true);
    dead.pair.declare_dead();
    assert!(sender.post(7));
    let request = at(with, 0).unwrap();
    assert_eq!((request.what, request.from, request.to), (EntryOp::Multicast, sender.qp.num, 0));
    assert_eq!((request.group(), request.imm, request.len), (gid, 7, 0));
    assert!(at(with, 1).is_none() && at(without, 0).is_none() && at(dead, 0).is_none());
    with.directory.publish_group(GroupBit::of(&gid), false);
    assert!(sender.post(8));
    assert!(at(with, 1).is_none());
}

#[test]
fn a_message_that_waits_for_room_goes_to_each_process_once() {
    let gid = group(2);
    let mut sender = GroupSender::<3>::to(gid, MULTICAST + 3);
    sender.peers.sort_by_key(|peer| peer.pair.slot);
    for peer in &sender.peers {
        peer.directory.publish_group(GroupBit::of(&gid), true);
    }
    let [before, full, behind] = &sender.peers;
    let read = |peer: &Wild, all: u32| peer.rings.requests_read.store(all, Ordering::Relaxed);
    let mut n = 0;
    while sender.post(n) {
        n += 1;
        assert!(n <= REQUESTS, "the ring is never full");
        [before, behind].iter().for_each(|peer| read(peer, n));
    }
    assert_eq!(at(before, n).map(|request| request.imm), Some(n), "before the one that is full");
    assert!(at(behind, n).is_none(), "behind it");
    read(before, n + 1);
    read(full, n);
    sender.look(1);
    assert_eq!(statuses(&sender.qp), [SUCCESS]);
    let [before, full, behind] = &sender.peers;
    for peer in [full, behind] {
        assert_eq!(at(peer, n).map(|request| request.imm), Some(n));
    }
    assert!([before, full, behind].iter().all(|peer| at(peer, n + 1).is_none()), "once each");
}

/// It reads one each time, so that it is never stopped.
#[test]
fn an_undrained_ring_delays_group_messages_only_once() {
    let gid = group(5);
    let mut sender = GroupSender::<1>::to(gid, MULTICAST + 7);
    sender.peers[0].directory.publish_group(GroupBit::of(&gid), true);
    assert_eq!(sender.fill(), REQUESTS);
    let overflowed = || crate::objects::device::default_device().counters().overflowed;
    let mut read = 1;
    sender.read(0, read);
    sender.expire();
    assert_eq!(statuses(&sender.qp), [SUCCESS], "there is room for it");
    // No other one waits, whether there is room or not.
    let before = overflowed();
    for n in 0..200 {
        read += n % 2;
        sender.read(0, read);
        assert!(sender.post(n), "{n}");
    }
    assert!(overflowed() - before >= 100);
    // Not quite drained.
    sender.read(0, read + REQUESTS / 8 - 1);
    assert!((0..REQUESTS).all(|n| sender.post(n)));
    // It reads on: messages wait for it again.
    sender.read(0, at_end(&sender));
    assert_eq!(sender.fill(), REQUESTS);
    sender.read(0, at_end(&sender));
    sender.look(0);
    assert_eq!(statuses(&sender.qp), [SUCCESS]);
}

#[test]
fn an_old_deadline_leaves_a_process_given_up() {
    let gid = group(7);
    let mut sender = GroupSender::<1>::to(gid, MULTICAST + 9);
    let other = GroupSender::<0>::to(gid, 0);
    sender.peers[0].directory.publish_group(GroupBit::of(&gid), true);
    assert_eq!(sender.fill(), REQUESTS);
    sender.read(0, REQUESTS / 8);
    sender.look(0);
    assert_eq!(statuses(&sender.qp), [SUCCESS]);
    assert_eq!(other.fill(), REQUESTS / 8 - 1);
    // Its deadline is that of its first wait.
    assert!(!sender.post(0));
    other.expire();
    assert_eq!(statuses(&other.qp), [SUCCESS]);
    sender.expire();
    assert_eq!(statuses(&sender.qp), [SUCCESS]);
}

/// Returns the index behind the requests that were put into the ring to the first peer.
fn at_end<const PEERS: usize>(sender: &GroupSender<PEERS>) -> u32 {
    let rings = &sender.peers[0].pair.outgoing;
    let mut request = RingRequest::default();
    let read = sender.peers[0].rings.requests_read.load(Ordering::Relaxed);
    let is_there = |index: &u32| matches!(read_request(rings, *index, &mut request), Ok(true));
    (read..).take_while(is_there).last().map_or(read, |index| index + 1)
}

#[test]
fn group_messages_wait_for_a_process_that_reads_in_time() {
    let gid = group(6);
    let mut sender = GroupSender::<1>::to(gid, MULTICAST + 8);
    sender.peers[0].directory.publish_group(GroupBit::of(&gid), true);
    assert_eq!(sender.fill(), REQUESTS);
    for turn in 1..10 {
        sender.read(0, turn * REQUESTS / 8);
        sender.look(0);
        assert_eq!(statuses(&sender.qp), [SUCCESS]);
        assert_eq!(sender.fill(), REQUESTS / 8 - 1);
        // That of an earlier wait.
        sender.expire();
        assert_eq!(statuses(&sender.qp), []);
    }
    assert_eq!(at_end(&sender), REQUESTS + 9 * REQUESTS / 8);
}

/// The message of a peer.
#[derive(Clone, Copy)]
struct PeerMessage {
    gid: GidBytes,
    from: u32,
    location: PayloadLocation,
    len: u32,
    offset: u64,
}

impl Wild {
    /// Sends a message to a group, and has it taken.
    fn multicast(&mut self, said: PeerMessage) {
        let kinds = u32::from_le_bytes([EntryOp::Multicast as u8, 0, said.location as u8, 0]);
        let mut request = RingRequest::default();
        request.name_group(&said.gid);
        let words = [
            u64::from(kinds) << 32,
            u64::from(said.from) << 32,
            0,
            u64::from(said.len) << 32,
            said.offset,
            0,
            request.body[2],
            request.body[3],
        ];
        self.rings.scribble_request(self.index, words);
        self.index += 1;
        let mut deferred = DeferredWork::default();
        self.progress.run(&crate::objects::device::default_device(), &mut deferred);
        deferred.run();
    }
}

#[test]
fn a_message_of_a_peer_reaches_the_members_if_it_is_sound() {
    let gid = group(3);
    let member = connected_to(ibv_qp_type::IBV_QPT_UD, 0);
    assert_eq!(member.attach_to_group(gid, 0), Ok(true));
    let mut peer = Wild::at_slot(slot(MULTICAST + 6), rustix::process::getpid());
    let from = far(peer.pair.slot);
    let good = PeerMessage { gid, from, location: PayloadLocation::Data, len: 64, offset: 0 };
    peer.multicast(good);
    assert_eq!(statuses(&member), [SUCCESS]);
    for said in [
        PeerMessage { gid: group(4), ..good },
        PeerMessage { from: member.num, ..good },
        PeerMessage { location: PayloadLocation::Body, len: 8, ..good },
        PeerMessage { location: PayloadLocation::Regions, ..good },
        PeerMessage { len: 4_097, ..good },
        PeerMessage { len: u32::MAX, ..good },
        PeerMessage { offset: u64::from(DATA) - 63, ..good },
        PeerMessage { offset: u64::MAX, ..good },
    ] {
        peer.multicast(said);
        assert_eq!(statuses(&member), []);
    }
    assert!(!peer.pair.is_dead());
    peer.multicast(PeerMessage { len: 4_096, ..good });
    assert_eq!(statuses(&member), [SUCCESS]);
    assert_eq!(member.detach_from_group(gid, 0), Ok(()));
    peer.multicast(good);
    assert_eq!(statuses(&member), []);
}

#[test]
fn a_filter_bit_stays_while_any_group_with_it_has_members() {
    let device = crate::objects::device::default_device();
    let here = device.peers.as_ref().unwrap().here().unwrap();
    let bit = |n: u16| {
        let mut gid = group(0);
        gid[..2].copy_from_slice(&[0xff, 0x05]);
        gid[14..].copy_from_slice(&n.to_be_bytes());
        (gid, GroupBit::of(&gid))
    };
    let (one, same) = (bit(0), (1..=u16::MAX).map(bit).find(|(_, other)| *other == bit(0).1));
    let same = same.expect("more groups than bits");
    let qp = connected_to(ibv_qp_type::IBV_QPT_UD, 0);
    for gid in [one.0, same.0] {
        assert_eq!(qp.attach_to_group(gid, 0), Ok(true));
    }
    assert!(here.directory.has_group(one.1));
    assert_eq!(qp.detach_from_group(one.0, 0), Ok(()));
    assert!(here.directory.has_group(one.1));
    assert_eq!(qp.detach_from_group(same.0, 0), Ok(()));
    assert!(!here.directory.has_group(one.1));
    // Groups in a row have bits of their own.
    let bits: HashSet<_> = (0..256).map(|n| bit(n).1).collect();
    assert!(bits.len() > 200, "{}", bits.len());
}
