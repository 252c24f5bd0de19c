//! The order of what a batch of packets causes, without the threads that take one otherwise.

mod bounds;
mod congestion;
mod groups;
mod held;
mod owed;
mod port;
mod room;

use core::mem::zeroed;
use core::net::{IpAddr, SocketAddr};
use core::ptr::null_mut;
use std::net::UdpSocket;
use std::sync::Arc;
use std::time::Duration;

use roce_core::codec;
use roce_core::headers::{Aeth, Bth, Deth, Headers, Reth, RnrTimer, Syndrome};
use roce_core::icrc::Flow;
use roce_core::lengths::{ICRC, MAX_HEADERS};
use roce_core::opcode::Opcode;
use roce_core::psn::Psn;
use verbs_sys::*;

use super::arrivals::Arrivals;
use super::device::{Roce, UDP_PORT};
use super::progress::drain;
use super::responder::Answering;
use crate::lock::Guard;
use crate::objects::deferred_work::DeferredWork;
use crate::objects::device::DEVICES;
use crate::objects::state::{Device, Qp};
use crate::peers::wire::answers::{Answers, AnswersSent};
use crate::peers::wire::state::{Rx, gid_of};
use crate::queues::address::MULTICAST_QPN;
use crate::testing::queue_pair_on;
use crate::udp::{Marks, ReceivedDatagram};
use crate::verbs::post::{post_recv, post_send};

const PEER_QPN: u32 = 0x77;

/// A connected queue pair whose peer is a socket of the test's. Packets are taken by the test
/// alone: it holds what receives.
struct Rig {
    device: Arc<Device>,
    object: Arc<Qp>,
    peer: UdpSocket,
}

impl Rig {
    fn new(device: &str, peer: &str) -> Rig {
        Rig::on(device_at(device), peer)
    }

    fn on(device: Arc<Device>, peer: &str) -> Rig {
        let qp = queue_pair_on(&device);
        let peer: IpAddr = peer.parse().unwrap();
        connect(qp, peer);
        let peer = socket(peer);
        // SAFETY: the queue pair is alive.
        let object = unsafe { Qp::from_abi(qp) }.unwrap().keep();
        Rig { device, object, peer }
    }

    fn post_recv(&self, wr_id: u64) {
        // SAFETY: a request without memory, and a live queue pair.
        unsafe {
            let mut wr = ibv_recv_wr { wr_id, ..zeroed() };
            assert_eq!(post_recv(self.object.as_abi(), &mut wr, &mut null_mut()), 0);
        }
    }

    fn post_send(&self, wr_id: u64) {
        let (opcode, flags) = (ibv_wr_opcode::IBV_WR_SEND, ibv_send_flags::IBV_SEND_SIGNALED);
        // SAFETY: as in `post_recv`.
        unsafe {
            let mut wr = ibv_send_wr { wr_id, opcode, send_flags: flags.0, ..zeroed() };
            assert_eq!(post_send(self.object.as_abi(), &mut wr, &mut null_mut()), 0);
        }
    }

    /// Takes the completions that the completion queue has now.
    fn completed(&self) -> Vec<(u64, ibv_wc_status)> {
        let mut all = Vec::new();
        // SAFETY: zeroes are a completion; there is room for one.
        let mut wc: ibv_wc = unsafe { zeroed() };
        // SAFETY: `wc` is room for one completion.
        while unsafe { self.object.send_cq.poll(&mut wc, 1) } == 1 {
            all.push((wc.wr_id, wc.status));
        }
        all
    }

    /// A packet of the peer, without payload.
    fn packet(&self, headers: &Headers) -> Vec<u8> {
        let (from, to) =
            (self.peer.local_addr().unwrap(), self.device.wire().unwrap().port.local());
        let mut bytes = [0; MAX_HEADERS];
        let len = codec::write(headers, &mut bytes).unwrap();
        let mut bytes = [&bytes[..len], &[0; ICRC]].concat();
        Flow::new(from, to).unwrap().seal(0, &mut bytes).unwrap();
        bytes
    }

    /// Takes a packet of the peer.
    fn take(&self, headers: &Headers) {
        self.take_from(self.peer.local_addr().unwrap(), 0, &self.packet(headers));
    }

    /// Takes bytes from an address, of a traffic class.
    fn take_from(&self, from: SocketAddr, class: u8, bytes: &[u8]) {
        let wire = self.device.wire().unwrap();
        let marks = Marks { class, ..Marks::default() };
        let datagram = ReceivedDatagram { from, marks, bytes, nth: 0, was_handed_over: false };
        let mut deferred = DeferredWork::default();
        Arrivals {
            device: &self.device,
            wire,
            answering: &mut Answers::default(),
            resuming: &mut Vec::new(),
            shared: &mut Answering::new(),
            deferred: &mut deferred,
        }
        .take_all(datagram.into());
        deferred.run();
    }

    /// The headers of the next packet that the peer gets.
    fn heard(&self) -> Headers {
        let mut bytes = [0; 2_048];
        let len = self.peer.recv(&mut bytes).unwrap();
        codec::parse(&bytes[..len]).unwrap().headers
    }

    /// Its opcode.
    fn sent(&self) -> Opcode {
        self.heard().bth.opcode
    }

    /// Answers what was taken, as behind a batch.
    fn answer(&self) {
        let (wire, mut deferred) = (self.device.wire().unwrap(), DeferredWork::default());
        let Answering { mut buffers, mut allowance } = Answering::new();
        let answering = (&mut buffers, &mut allowance);
        assert_eq!(self.object.answer_peer(wire, answering, &mut deferred), AnswersSent::All);
        wire.flush(&mut wire.tx.lock());
        deferred.run();
    }

    fn modify(&self, attr: &mut ibv_qp_attr, mask: ibv_qp_attr_mask) {
        // SAFETY: the queue pair is alive.
        let done =
            unsafe { (crate::table().modify_qp)(self.object.as_abi(), attr, mask.0.cast_signed()) };
        assert_eq!(done, 0);
    }

    fn to_state(&self, qp_state: ibv_qp_state) {
        self.modify(&mut ibv_qp_attr { qp_state, ..none() }, ibv_qp_attr_mask::IBV_QP_STATE);
    }

    fn send(&self, psn: u32) -> Headers {
        let bth = Bth::new(Opcode::RcSendOnly, self.object.num, Psn::new(psn));
        Headers::new(Bth { ack_req: true, ..bth })
    }

    /// A READ of a region that stays, of `len` bytes.
    fn read(&self, len: usize) -> Headers {
        let bytes = Box::leak(vec![5_u8; len].into_boxed_slice());
        let access = ibv_access_flags::IBV_ACCESS_REMOTE_READ.0.cast_signed();
        // SAFETY: the queue pair is alive, and the memory stays.
        let rkey = unsafe {
            let pd = (*self.object.as_abi()).pd;
            (*(crate::table().reg_mr)(pd, bytes.as_mut_ptr().cast(), len, access)).rkey
        };
        let bth = Bth::new(Opcode::RcReadRequest, self.object.num, Psn::new(0));
        let reth = Some(Reth { va: bytes.as_ptr() as u64, rkey, len: len as u32 });
        Headers { reth, ..Headers::new(Bth { ack_req: true, ..bth }) }
    }

    fn ack(&self, psn: u32) -> Headers {
        let bth = Bth::new(Opcode::RcAck, self.object.num, Psn::new(psn));
        let aeth = Some(Aeth { syndrome: Syndrome::ACK, msn: 1 });
        Headers { aeth, ..Headers::new(bth) }
    }
}

/// The device of an address.
fn device_at(address: &str) -> Arc<Device> {
    let name = address.parse::<Roce>().unwrap().list().unwrap();
    DEVICES.lock().iter().find(|device| device.name() == name).cloned().unwrap()
}

/// The same, without a thread: packets are taken by the test alone.
fn without_thread(address: &str) -> Arc<Device> {
    let device = device_at(address);
    device.wire().unwrap().thread.set(None).unwrap();
    device
}

/// A socket that waits for a limited time only.
fn socket(ip: IpAddr) -> UdpSocket {
    let socket = UdpSocket::bind((ip, UDP_PORT)).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    socket
}

/// No other thread takes received packets.
fn alone(device: &Device) -> Guard<'_, Rx> {
    device.wire().unwrap().rx.lock()
}

fn none() -> ibv_qp_attr {
    // SAFETY: zeroes are attributes.
    unsafe { zeroed() }
}

/// Ready to send, to a queue pair that the test stands for. Packets are numbered from 0.
fn connect(qp: *mut ibv_qp, peer: IpAddr) {
    use ibv_qp_attr_mask as Mask;
    let mut attr = none();
    attr.port_num = 1;
    attr.path_mtu = ibv_mtu::IBV_MTU_1024;
    attr.dest_qp_num = PEER_QPN;
    attr.qp_access_flags = ibv_access_flags::IBV_ACCESS_REMOTE_READ.0;
    (attr.max_rd_atomic, attr.max_dest_rd_atomic) = (1, 1);
    (attr.timeout, attr.retry_cnt, attr.rnr_retry, attr.min_rnr_timer) = (0, 7, 7, 1);
    (attr.ah_attr.is_global, attr.ah_attr.port_num) = (1, 1);
    attr.ah_attr.grh.dgid.raw = gid_of(peer);
    let init = Mask::IBV_QP_PKEY_INDEX | Mask::IBV_QP_PORT | Mask::IBV_QP_ACCESS_FLAGS;
    let rtr = Mask::IBV_QP_AV
        | Mask::IBV_QP_PATH_MTU
        | Mask::IBV_QP_DEST_QPN
        | Mask::IBV_QP_RQ_PSN
        | Mask::IBV_QP_MAX_DEST_RD_ATOMIC
        | Mask::IBV_QP_MIN_RNR_TIMER;
    let rts = Mask::IBV_QP_TIMEOUT
        | Mask::IBV_QP_RETRY_CNT
        | Mask::IBV_QP_RNR_RETRY
        | Mask::IBV_QP_SQ_PSN
        | Mask::IBV_QP_MAX_QP_RD_ATOMIC;
    let steps = [
        (ibv_qp_state::IBV_QPS_INIT, init),
        (ibv_qp_state::IBV_QPS_RTR, rtr),
        (ibv_qp_state::IBV_QPS_RTS, rts),
    ];
    for (state, mask) in steps {
        attr.qp_state = state;
        let mask = (mask | Mask::IBV_QP_STATE).0.cast_signed();
        // SAFETY: the queue pair is alive.
        assert_eq!(unsafe { (crate::table().modify_qp)(qp, &mut attr, mask) }, 0);
    }
}

const QKEY: u32 = 0x11;

/// Ready to send and receive datagrams.
fn be_ready_for_datagrams(qp: *mut ibv_qp) {
    use ibv_qp_attr_mask as Mask;
    let mut attr = none();
    (attr.port_num, attr.qkey) = (1, QKEY);
    let init = Mask::IBV_QP_PKEY_INDEX | Mask::IBV_QP_PORT | Mask::IBV_QP_QKEY;
    for (state, mask) in [
        (ibv_qp_state::IBV_QPS_INIT, init),
        (ibv_qp_state::IBV_QPS_RTR, Mask::IBV_QP_STATE),
        (ibv_qp_state::IBV_QPS_RTS, Mask::IBV_QP_SQ_PSN),
    ] {
        attr.qp_state = state;
        let mask = (mask | Mask::IBV_QP_STATE).0.cast_signed();
        // SAFETY: the queue pair is alive.
        assert_eq!(unsafe { (crate::table().modify_qp)(qp, &mut attr, mask) }, 0);
    }
}

const SUCCESS: ibv_wc_status = ibv_wc_status::IBV_WC_SUCCESS;

/// The group's number is that of no queue pair: a packet to it has to be addressed to a group.
#[test]
fn a_packet_to_a_group_number_at_a_device_address_is_dropped() {
    let rig = Rig::new("127.0.0.132", "127.0.0.133");
    let mut headers = Headers::new(Bth::new(Opcode::UdSendOnly, MULTICAST_QPN, Psn::new(0)));
    headers.deth = Some(Deth { qkey: 0x11, src_qpn: PEER_QPN });
    let strangers = || rig.device.wire().unwrap().packet_counters().strangers;
    let before = strangers();
    rig.take(&headers);
    assert_eq!(strangers(), before + 1);
}

#[test]
fn a_reply_goes_behind_the_acknowledgement_of_what_it_answers() {
    let rig = Rig::new("127.0.0.111", "127.0.0.112");
    let device = Arc::clone(&rig.device);
    let _alone = alone(&device);
    rig.post_recv(1);
    rig.take(&rig.send(0));
    // The program sees the request before the batch is over.
    assert_eq!(rig.completed(), [(1, SUCCESS)]);
    rig.post_send(2);
    assert_eq!(rig.sent(), Opcode::RcAck);
    assert_eq!(rig.sent(), Opcode::RcSendOnly);
    // It is answered once.
    let wire = device.wire().unwrap();
    rig.answer();
    assert!(wire.tx.lock().is_empty());
}

#[test]
fn an_acknowledged_send_completes_before_later_packets() {
    let rig = Rig::new("127.0.0.113", "127.0.0.114");
    let device = Arc::clone(&rig.device);
    let _alone = alone(&device);
    rig.post_recv(1);
    rig.post_send(2);
    assert_eq!(rig.sent(), Opcode::RcSendOnly);
    rig.take(&rig.ack(0));
    assert_eq!(rig.completed(), [(2, SUCCESS)]);
    rig.take(&rig.send(0));
    assert_eq!(rig.completed(), [(1, SUCCESS)]);
}

/// A program that sees the last completion finds the queue pair drained: both come under one lock, and not behind the
/// batch of packets.
#[test]
fn an_acknowledgement_that_completes_all_ends_a_drain() {
    use ibv_qp_attr_mask as Mask;
    let rig = Rig::on(without_thread("127.0.0.248"), "127.0.0.249");
    rig.post_send(1);
    assert_eq!(rig.sent(), Opcode::RcSendOnly);
    let mut attr = none();
    (attr.qp_state, attr.en_sqd_async_notify) = (ibv_qp_state::IBV_QPS_SQD, 1);
    rig.modify(&mut attr, Mask::IBV_QP_STATE | Mask::IBV_QP_EN_SQD_ASYNC_NOTIFY);
    assert!(rig.object.sq.lock().draining);
    rig.take(&rig.ack(0));
    assert_eq!(rig.completed(), [(1, SUCCESS)]);
    assert!(!rig.object.sq.lock().draining);
}

#[test]
fn the_rnr_timer_of_a_connection_that_works_can_change() {
    let rig = Rig::new("127.0.0.115", "127.0.0.116");
    let device = Arc::clone(&rig.device);
    let _alone = alone(&device);
    let min_rnr_timer = 5;
    let mask = ibv_qp_attr_mask::IBV_QP_MIN_RNR_TIMER;
    rig.modify(&mut ibv_qp_attr { min_rnr_timer, ..none() }, mask);
    rig.take(&rig.send(0));
    rig.answer();
    let timer = RnrTimer::new(min_rnr_timer).unwrap();
    assert_eq!(rig.heard().aeth.unwrap().syndrome, Syndrome::RnrNak { timer });
}

#[test]
fn a_drained_connection_can_get_another_path_and_other_retries() {
    use ibv_qp_attr_mask as Mask;
    let rig = Rig::new("127.0.0.117", "127.0.0.118");
    rig.to_state(ibv_qp_state::IBV_QPS_SQD);
    let mut attr = none();
    (attr.timeout, attr.retry_cnt) = (1, 0);
    (attr.ah_attr.is_global, attr.ah_attr.port_num) = (1, 1);
    let other: IpAddr = "127.0.0.119".parse().unwrap();
    let peer = socket(other);
    attr.ah_attr.grh.dgid.raw = gid_of(other);
    rig.modify(&mut attr, Mask::IBV_QP_AV | Mask::IBV_QP_TIMEOUT | Mask::IBV_QP_RETRY_CNT);
    rig.to_state(ibv_qp_state::IBV_QPS_RTS);
    rig.post_send(1);
    let rig = Rig { peer, ..rig };
    assert_eq!(rig.sent(), Opcode::RcSendOnly);
    // It was to wait for ever.
    let end = host::time::now() + Duration::from_secs(60);
    loop {
        match rig.completed()[..] {
            [] => assert!(host::time::now() < end, "it waits"),
            ref all => break assert_eq!(all, [(1, ibv_wc_status::IBV_WC_RETRY_EXC_ERR)]),
        }
        host::thread::yield_now();
    }
    // The peer is the new one.
    let responder = rig.object.responder.lock();
    assert_eq!(responder.wire.as_ref().unwrap().path.unwrap().peer.ip(), other);
}

/// A packet is there when the queue pair is reset, and is the one that the next connection expects.
#[test]
fn a_packet_of_the_last_connection_is_not_one_of_the_next() {
    let rig = Rig::new("127.0.0.120", "127.0.0.121");
    let wire = rig.device.wire().unwrap();
    let (to, stale) = (wire.port.local(), rig.packet(&rig.send(0)));
    for round in 0..50 {
        let alone = alone(&rig.device);
        rig.peer.send_to(&stale, to).unwrap();
        std::thread::scope(|scope| {
            let anew = scope.spawn(|| {
                rig.to_state(ibv_qp_state::IBV_QPS_RESET);
                connect(rig.object.as_abi(), rig.peer.local_addr().unwrap().ip());
                rig.post_recv(round);
            });
            // Until the reset waits for what receives, or has ended.
            drop(alone);
            anew.join().unwrap();
        });
        drain(&rig.device);
        assert_eq!(rig.completed(), [], "round {round}");
    }
}

#[test]
fn what_comes_again_or_too_early_is_counted() {
    let rig = Rig::new("127.0.0.122", "127.0.0.123");
    let wire = rig.device.wire().unwrap();
    {
        let _alone = alone(&rig.device);
        rig.post_recv(1);
        for psn in [0, 0, 5, 1] {
            rig.take(&rig.send(psn));
        }
        rig.answer();
        assert_eq!(rig.sent(), Opcode::RcAck);
    }
    let counted = wire.packet_counters();
    let repeated = (counted.duplicates, counted.out_of_sequence, counted.not_ready);
    // What says that one is missing goes at once.
    assert_eq!((counted.sent, repeated), (2, (1, 1, 1)));
}

/// The peer may not have had the last acknowledgement.
#[test]
fn an_ended_queue_pair_acknowledges_what_it_received() {
    let rig = Rig::new("127.0.0.124", "127.0.0.125");
    let counts = &rig.device.wire().unwrap().counts;
    let strangers = || counts.strangers.load(core::sync::atomic::Ordering::Relaxed);
    let says_nothing = || {
        rig.peer.set_nonblocking(true).unwrap();
        assert!(rig.peer.recv(&mut [0; 64]).is_err(), "something was sent");
        rig.peer.set_nonblocking(false).unwrap();
    };
    rig.post_recv(1);
    rig.take(&rig.send(0));
    assert_eq!(rig.completed(), [(1, SUCCESS)]);
    // What it still owes, and again what it does not owe any more.
    rig.to_state(ibv_qp_state::IBV_QPS_ERR);
    rig.answer();
    assert_eq!(rig.sent(), Opcode::RcAck);
    rig.take(&rig.send(0));
    let again = rig.heard();
    assert_eq!((again.bth.opcode, again.bth.psn), (Opcode::RcAck, Psn::new(0)));
    rig.take(&rig.send(1));
    says_nothing();
    // SAFETY: the queue pair is alive, and not used any more.
    assert_eq!(unsafe { (crate::table().destroy_qp)(rig.object.as_abi()) }, 0);
    let before = strangers();
    rig.take(&rig.send(0));
    assert_eq!(rig.sent(), Opcode::RcAck);
    assert_eq!(strangers(), before);
    rig.take(&rig.send(1));
    says_nothing();
    assert_eq!(strangers(), before + 1);
}

#[test]
fn a_short_read_is_answered_again_after_its_queue_pair_ended() {
    let rig = Rig::new("127.0.0.104", "127.0.0.105");
    let mut bytes = [5_u8; 16];
    let access = ibv_access_flags::IBV_ACCESS_REMOTE_READ.0.cast_signed();
    // SAFETY: the queue pair is alive, and so is the memory.
    let mr = unsafe {
        let pd = (*rig.object.as_abi()).pd;
        (crate::table().reg_mr)(pd, bytes.as_mut_ptr().cast(), bytes.len(), access)
    };
    // SAFETY: it was made just now.
    let rkey = unsafe { (*mr).rkey };
    let va = bytes.as_ptr() as u64;
    let read = |psn, len| {
        let bth = Bth::new(Opcode::RcReadRequest, rig.object.num, Psn::new(psn));
        let reth = Some(Reth { va: va + 4, rkey, len });
        Headers { reth, ..Headers::new(Bth { ack_req: true, ..bth }) }
    };
    rig.take(&read(0, 8));
    rig.answer();
    let response = rig.heard();
    // SAFETY: it is not used any more.
    assert_eq!(unsafe { (crate::table().dereg_mr)(mr) }, 0);
    bytes.fill(9);
    rig.take(&read(0, 8));
    rig.answer();
    assert_eq!(rig.heard(), response, "its region has ended");
    // SAFETY: it is not used any more.
    assert_eq!(unsafe { (crate::table().destroy_qp)(rig.object.as_abi()) }, 0);
    rig.take(&read(0, 9));
    rig.take(&read(1, 8));
    rig.take(&read(0, 8));
    let mut again = [0; 64];
    let len = rig.peer.recv(&mut again).unwrap();
    let again = codec::parse(&again[..len]).unwrap();
    assert_eq!((again.headers, again.payload), (response, &[5; 8][..]));
}

#[test]
fn only_the_last_ended_queue_pairs_are_remembered() {
    let rig = Rig::new("127.0.0.100", "127.0.0.101");
    let wire = rig.device.wire().unwrap();
    rig.post_recv(1);
    rig.take(&rig.send(0));
    for number in 0..1_000 {
        let mut responder = rig.object.responder.lock();
        wire.remember(number, responder.wire.take(), Vec::new());
        drop(responder);
        rig.to_state(ibv_qp_state::IBV_QPS_RESET);
        connect(rig.object.as_abi(), rig.peer.local_addr().unwrap().ip());
        rig.post_recv(1);
        rig.take(&rig.send(0));
    }
    assert_eq!(wire.departed.lock().len(), 256);
}

#[test]
fn what_a_connection_has_counted_stays_when_it_ends() {
    let rig = Rig::new("127.0.0.102", "127.0.0.103");
    let naks = || rig.device.counters().rnr_naks;
    let refuse = || {
        let _alone = alone(&rig.device);
        rig.post_send(1);
        assert_eq!(rig.sent(), Opcode::RcSendOnly);
        let aeth = Aeth { syndrome: Syndrome::RnrNak { timer: RnrTimer::new(0).unwrap() }, msn: 0 };
        rig.take(&Headers { aeth: Some(aeth), ..rig.ack(0) });
    };
    refuse();
    assert_eq!(naks(), 1);
    rig.to_state(ibv_qp_state::IBV_QPS_RESET);
    assert_eq!(naks(), 1);
    connect(rig.object.as_abi(), rig.peer.local_addr().unwrap().ip());
    // Of the packets of the first connection some have arrived later.
    rig.peer.set_nonblocking(true).unwrap();
    while rig.peer.recv(&mut [0; 64]).is_ok() {}
    rig.peer.set_nonblocking(false).unwrap();
    refuse();
    assert_eq!(naks(), 2);
    // SAFETY: it is used no more but for its counts.
    assert_eq!(unsafe { (crate::table().destroy_qp)(rig.object.as_abi()) }, 0);
    assert_eq!(naks(), 2);
}
