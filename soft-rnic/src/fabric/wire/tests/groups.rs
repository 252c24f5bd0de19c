//! Packets to groups beside everything else: how much one look takes, and in which order.

use super::super::groups::{COPIES, READY};
use super::super::progress::{LookScope, catch_up, progress, settle};
use super::port::unwatched;
use super::*;
use crate::testing::{queue_pair_of, queue_pair_on};
use crate::udp::{AddressState, PacketOutbox, UdpPort};

const ALL: LookScope = LookScope::Whole { may_defer: false };

/// A device without a thread that does not look for changes: packets are taken by the test alone.
struct Groups {
    device: Arc<Device>,
    members: Vec<Arc<Qp>>,
    peer: UdpPort,
}

impl Groups {
    fn new(device: &str, peer: &str) -> Groups {
        let device = unwatched(device);
        device.wire().unwrap().thread.set(None).unwrap();
        let peer: IpAddr = peer.parse().unwrap();
        let peer = UdpPort::bind(SocketAddr::new(peer, 0)).unwrap();
        Groups { device, members: Vec::new(), peer }
    }

    /// Has `n` more queue pairs attached to a group.
    fn attach(&mut self, group: u8, n: usize) {
        let wire = self.device.wire().unwrap();
        for _ in 0..n {
            let qp = queue_pair_of(&self.device, ibv_qp_type::IBV_QPT_UD);
            be_ready_for_datagrams(qp);
            // SAFETY: the queue pair is alive.
            let qp = unsafe { Qp::from_abi(qp) }.unwrap().keep();
            qp.attach_on_wire(wire, gid_of(self.address(group).ip()), 0).unwrap();
            self.members.push(qp);
        }
    }

    fn address(&self, group: u8) -> SocketAddr {
        let IpAddr::V4(ip) = self.peer.local().ip() else { panic!("of version 4") };
        // Groups reach the devices of all tests.
        let [.., c, d] = ip.octets();
        SocketAddr::from(([239, c, d, group], UDP_PORT))
    }

    /// The peer sends runs of these numbers of packets without payload to a group.
    fn send(&self, group: u8, runs: &[usize]) {
        let to = self.address(group);
        let mut headers = Headers::new(Bth::new(Opcode::UdSendOnly, MULTICAST_QPN, Psn::new(0)));
        headers.deth = Some(Deth { qkey: QKEY, src_qpn: PEER_QPN });
        let mut bytes = [0; MAX_HEADERS];
        let len = codec::write(&headers, &mut bytes).unwrap();
        let bytes = [&bytes[..len], &[0; ICRC]].concat();
        let flow = Flow::new(self.peer.local(), to).unwrap();
        let mut outbox = PacketOutbox::new(true);
        for run in runs {
            for _ in 0..*run {
                let (nth, room) = outbox.push(to, Marks::default(), bytes.len()).unwrap();
                room.copy_from_slice(&bytes);
                flow.seal(nth, room).unwrap();
            }
            outbox.send(&self.peer).unwrap();
            assert!(outbox.is_empty());
        }
    }

    /// Takes one look; returns whether there may be more to do, how many packets it has taken, and
    /// how many members had no receive request for them.
    fn look(&self, look: LookScope) -> (bool, usize, usize) {
        let wire = self.device.wire().unwrap();
        let counts = || {
            let counters = wire.packet_counters();
            (counters.received as usize, counters.not_ready as usize)
        };
        let before = counts();
        let has_more = progress(&self.device, wire, wire.rx.lock(), look);
        let after = counts();
        (has_more, after.0 - before.0, after.1 - before.1)
    }
}

/// Members have no request: each copy is counted, and none takes memory.
#[test]
fn one_look_at_a_group_makes_a_bounded_number_of_copies() {
    const RUN: usize = 64;
    let mut groups = Groups::new("127.0.0.230", "127.0.0.231");
    for members in [16, 17, 66, 200] {
        groups.attach(1, members - groups.members.len());
        groups.send(1, &[RUN; 6]);
        let (mut taken, mut looks) = (0, 0);
        while taken < 6 * RUN {
            let (has_more, received, copies) = groups.look(ALL);
            assert!(received > 0 && (has_more || taken + received == 6 * RUN), "{taken}");
            assert_eq!(copies, received * members);
            assert!(copies < COPIES + RUN * members, "{copies} to {members}");
            (taken, looks) = (taken + received, looks + 1);
        }
        assert!(looks > 1, "{looks}");
        assert_eq!(groups.look(ALL), (false, 0, 0));
    }
}

/// However many groups have packets.
#[test]
fn one_look_passes_over_so_many_sockets_of_groups() {
    let mut groups = Groups::new("127.0.0.246", "127.0.0.247");
    for group in 0..=READY as u8 {
        groups.attach(group, 1);
        groups.send(group, &[1]);
    }
    assert_eq!(groups.look(ALL), (true, READY, READY));
    assert_eq!(groups.look(ALL), (false, 1, 1));
}

/// Each run to one of two groups uses one look up.
#[test]
fn a_group_gets_its_turn_beside_others_that_are_flooded() {
    let mut groups = Groups::new("127.0.0.232", "127.0.0.233");
    for (group, members) in [(1, 65), (2, 65), (3, 1)] {
        groups.attach(group, members);
    }
    for (group, runs) in [(1, &[64; 5][..]), (2, &[64; 5]), (3, &[1])] {
        groups.send(group, runs);
    }
    // Copies for the others are multiples of 65.
    let turn = (0..4).find(|_| groups.look(ALL).2 % 65 == 1);
    assert!(turn.is_some(), "it had no turn");
}

/// Work that is done for connections takes nothing of groups, and is over when there is nothing for
/// them.
#[test]
fn what_is_done_for_connections_leaves_groups_alone() {
    let mut groups = Groups::new("127.0.0.234", "127.0.0.235");
    groups.attach(1, 1);
    groups.send(1, &[5]);
    assert_eq!(groups.look(LookScope::Own), (false, 0, 0));
    let received = || groups.device.wire().unwrap().packet_counters().received;
    drain(&groups.device);
    catch_up(&groups.device);
    assert_eq!(received(), 0);
    assert_eq!(groups.look(ALL), (false, 5, 5));
}

/// A connection that has an answer to send does not wait for copies.
#[test]
fn connections_are_answered_before_groups_have_their_turn() {
    let mut groups = Groups::new("127.0.0.236", "127.0.0.237");
    groups.attach(1, 1);
    groups.send(1, &[1]);
    let wire = groups.device.wire().unwrap();
    let qp = queue_pair_on(&groups.device);
    let peer: IpAddr = "127.0.0.238".parse().unwrap();
    connect(qp, peer);
    let peer = socket(peer);
    let device = Arc::clone(&groups.device);
    // SAFETY: the queue pair is alive.
    let object = unsafe { Qp::from_abi(qp) }.unwrap().keep();
    let rig = Rig { device, object, peer };
    rig.post_recv(1);
    rig.peer.send_to(&rig.packet(&rig.send(0)), wire.port.local()).unwrap();
    // What it owes may be left to what the program sends next, unless a group has its turn.
    assert!(!progress(&rig.device, wire, wire.rx.lock(), LookScope::Whole { may_defer: true }));
    assert_eq!(rig.sent(), Opcode::RcAck);
}

/// A child of fork detaches from one of two groups, and destroys the member of the other, while a
/// thread of the parent may hold the receive lock.
#[test]
fn a_child_of_fork_leaves_the_groups_to_its_parent() {
    let mut groups = Groups::new("127.0.0.239", "127.0.0.240");
    [1, 2].iter().for_each(|group| groups.attach(*group, 1));
    let (wire, member) = (groups.device.wire().unwrap(), &groups.members[0]);
    let gid = |group| gid_of(groups.address(group).ip());
    let mut status = 0;
    {
        let _held = wire.rx.lock();
        // SAFETY: no other thread uses the device, so that the child finds its other locks free.
        let child = unsafe { libc::fork() };
        if child == 0 {
            // SAFETY: a child that waits for ever ends, too.
            unsafe { libc::alarm(20) };
            let refused = member.attach_on_wire(wire, gid(3), 0) == Err(crate::errno::EPERM);
            let detached = member.detach_on_wire(wire, gid(1), 0) == Ok(());
            groups.members[1].leave_groups();
            settle(member);
            drain(&groups.device);
            // SAFETY: it ends here.
            unsafe { libc::_exit(i32::from(!(refused && detached))) };
        }
        // SAFETY: a child of ours that was not waited for.
        assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
    }
    assert_eq!(status, 0);
    [1, 2].iter().for_each(|group| groups.send(*group, &[1]));
    assert_eq!(groups.look(ALL), (false, 2, 2));
}

/// The memberships of an interface end with it. Another one that has the address is recognised by
/// its number.
#[test]
fn groups_are_joined_again_on_another_interface() {
    let present = |index| AddressState::Present { is_running: true, mtu: None, index: Some(index) };
    let mut groups = Groups::new("127.0.0.244", "127.0.0.245");
    [1, 2].iter().for_each(|group| groups.attach(*group, 1));
    let (device, local) = (&groups.device, groups.device.wire().unwrap().port.local().ip());
    let wire = device.wire().unwrap();
    let end_memberships = || {
        let rx = wire.rx.lock();
        rx.groups.all.iter().for_each(|socket| socket.port.leave(local));
    };
    let came = || {
        [1, 2].iter().for_each(|group| groups.send(*group, &[1]));
        groups.look(ALL).1
    };
    wire.follow_interface(present(7));
    assert_eq!(came(), 2);
    for finds in [&[present(8)][..], &[AddressState::Absent, present(8)]] {
        end_memberships();
        assert_eq!(came(), 0);
        finds.iter().for_each(|found| wire.follow_interface(*found));
        assert_eq!(came(), 2, "{finds:?}");
    }
    // A look that finds nothing new leaves them as they are, and so does one that does not know the
    // number.
    end_memberships();
    let unknown = AddressState::Present { is_running: true, mtu: None, index: None };
    [present(8), unknown].iter().for_each(|found| wire.follow_interface(*found));
    assert_eq!(came(), 0);
}
