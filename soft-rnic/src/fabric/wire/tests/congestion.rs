//! Packets that the network has marked, and notifications of peers.

use roce_core::congestion::{CE, ECT_0, cnp};
use roce_core::headers::DEFAULT_PKEY;

use super::*;
use crate::counters::PacketCounters;
use crate::peers::wire::state::WireSq;
use crate::udp::{PacketInbox, UdpPort};

/// DSCP 46, and these ECN bits.
const fn class(ecn: u8) -> u8 {
    0xb8 | ecn
}

impl Rig {
    /// Takes a packet of the peer of this class.
    fn take_of_class(&self, headers: &Headers, class: u8) {
        self.take_from(self.peer.local_addr().unwrap(), class, &self.packet(headers));
    }

    fn counted(&self) -> PacketCounters {
        // What receives is the test's: its lock is not held.
        self.device.wire().unwrap().packet_counters()
    }

    /// The window of its requester.
    fn window(&self) -> u32 {
        match self.object.sq.lock().wire.as_deref().unwrap() {
            WireSq::Reliable(wire) => wire.machine.window(),
            WireSq::Unreliable(..) => unreachable!("it is a reliable connection"),
        }
    }

    fn notification(&self) -> Headers {
        cnp(self.object.num, DEFAULT_PKEY)
    }
}

#[test]
fn a_congestion_mark_is_answered_with_a_notification() {
    let rig = Rig::new("127.44.1.1", "127.44.1.2");
    {
        let device = Arc::clone(&rig.device);
        let _alone = alone(&device);
        for ecn in [0, 1, ECT_0, CE] {
            rig.take_of_class(&rig.send(0), class(ecn));
        }
        assert_eq!(rig.heard(), cnp(PEER_QPN, DEFAULT_PKEY), "at once");
        // There is no receive request.
        rig.answer();
        assert_eq!(rig.sent(), Opcode::RcAck);
        // An answer that has met congestion is one of the peer's packets as well; a notification is not.
        rig.take_of_class(&rig.notification(), class(CE));
    }
    let counted = rig.counted();
    assert_eq!((counted.np_ecn_marked_packets, counted.np_cnp_sent), (1, 1));
    let bth = Bth { fecn: true, ..rig.send(0).bth };
    rig.take(&Headers::new(bth));
    assert_eq!(rig.counted().np_ecn_marked_packets, 2, "FECN says the same");
    rig.take_of_class(&rig.ack(0), class(CE));
    assert_eq!(rig.counted().np_ecn_marked_packets, 3);
}

/// The classes of packets as the peer's IP sees them.
#[test]
fn a_notification_keeps_the_dscp_and_is_not_ecn_capable() {
    let rig = Rig::new("127.44.1.8,ecn=on", "127.44.1.9");
    let marked = rig.packet(&rig.send(0));
    let Rig { device, object, peer } = rig;
    let from = peer.local_addr().unwrap();
    drop(peer);
    let (port, mut inbox) = (UdpPort::bind(from).unwrap(), PacketInbox::default());
    let rig = Rig { device, object, peer: socket("127.44.1.10".parse().unwrap()) };
    let mut heard = || {
        assert_eq!(port.wait(None, Duration::from_secs(20)), Ok(true));
        assert_eq!(inbox.receive(&port), Ok(true));
        let all = inbox.datagrams().map(|datagram| (datagram.bytes[0], datagram.marks.class));
        all.collect::<Vec<_>>()
    };
    rig.post_send(1);
    assert_eq!(heard(), [(Opcode::RcSendOnly.to_u8(), ECT_0)]);
    rig.object.responder.lock().wire.as_mut().unwrap().path.as_mut().unwrap().marks.class = 0xba;
    rig.take_from(from, CE, &marked);
    assert_eq!(heard(), [(Opcode::Cnp.to_u8(), 0xb8)]);
}

/// It says nothing to a peer that it does not receive from any more.
#[test]
fn a_queue_pair_in_the_error_state_sends_no_notification() {
    let rig = Rig::new("127.44.1.3", "127.44.1.4");
    rig.to_state(ibv_qp_state::IBV_QPS_ERR);
    rig.take_of_class(&rig.send(0), class(CE));
    rig.take_of_class(&rig.notification(), class(0));
    let counted = rig.counted();
    assert_eq!((counted.np_ecn_marked_packets, counted.np_cnp_sent), (1, 0));
    assert_eq!((counted.rp_cnp_handled, counted.rp_cnp_ignored), (0, 1));
}

#[test]
fn only_a_notification_of_the_peer_shrinks_the_window() {
    let rig = Rig::new("127.44.1.5", "127.44.1.6");
    let whole = rig.window();
    assert!(whole > 4);
    rig.post_send(1);
    assert_eq!(rig.sent(), Opcode::RcSendOnly);
    let mut wrong = rig.packet(&rig.notification());
    *wrong.last_mut().unwrap() ^= 1;
    rig.take_from(rig.peer.local_addr().unwrap(), 0, &wrong);
    assert_eq!(rig.counted().bad_icrc, 1);
    let stranger: SocketAddr = "127.44.1.7:4791".parse().unwrap();
    let mut foreign = rig.packet(&rig.notification());
    let to = rig.device.wire().unwrap().port.local();
    Flow::new(stranger, to).unwrap().seal(0, &mut foreign).unwrap();
    rig.take_from(stranger, 0, &foreign);
    assert_eq!(rig.counted().strangers, 1);
    assert_eq!(rig.window(), whole);
    rig.take(&rig.notification());
    assert_eq!(rig.window(), whole / 2);
    assert_eq!((rig.counted().rp_cnp_handled, rig.counted().rp_cnp_ignored), (1, 0));
    rig.take(&rig.ack(0));
    assert_eq!(rig.completed(), [(1, SUCCESS)]);
}
