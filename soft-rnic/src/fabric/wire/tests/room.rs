//! Sockets that are full, and those that send beside one that sends much.

use core::net::SocketAddr;
use core::sync::atomic::Ordering;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd, AsRawFd};
use std::sync::mpsc;

use roce_core::lengths::MAX_PACKET;

use super::*;
use crate::objects::cq::CqWriter;
use crate::peers::wire::state::RoceWire;
use crate::testing::queue_pair_of;
use crate::udp::{PacketOutbox, UdpPort};

const LONG: Duration = Duration::from_secs(20);

/// Puts a stream that takes no more in the place of a port: the kernel says of it what it says of a
/// port that is full. (Packets on the loopback interface have left their socket when the call is
/// over.)
struct Full {
    reader: TcpStream,
    written: usize,
}

impl Full {
    fn new(port: &UdpPort) -> Full {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (reader, _) = listener.accept().unwrap();
        stream.set_nonblocking(true).unwrap();
        // SAFETY: both are open; the port's own socket is closed.
        let put = unsafe { libc::dup2(stream.as_raw_fd(), port.as_fd().as_raw_fd()) };
        assert_ne!(put, -1);
        let mut full = Full { reader, written: 0 };
        loop {
            let before = full.written;
            while let Ok(written) = stream.write(&[0; 1 << 16]) {
                full.written += written;
            }
            // What is acknowledged late makes room again: after 200 ms at most (TCP_DELACK_MAX).
            let is_writable = port.wait_for_room(Duration::from_millis(250)).unwrap();
            if !is_writable && full.written == before {
                return full;
            }
        }
    }

    fn make_room(&mut self, port: &UdpPort) {
        self.reader.read_exact(&mut vec![0; self.written]).unwrap();
        assert_eq!(port.wait_for_room(LONG), Ok(true));
    }
}

/// Puts packets into the outbox that leave by the second source port.
fn push(tx: &mut PacketOutbox, to: SocketAddr, is_enough: impl Fn(&PacketOutbox) -> bool) {
    tx.choose_source(1);
    while !is_enough(tx) {
        assert!(tx.push(to, Marks::default(), MAX_PACKET).is_some());
    }
}

fn second(wire: &RoceWire) -> &UdpPort {
    &wire.send_ports.others()[0]
}

#[test]
fn the_device_waits_for_the_source_port_that_is_full() {
    let rig = Rig::new("127.0.0.126,sports=2", "127.0.0.127");
    // Nothing sends what is in the outbox.
    let _alone = alone(&rig.device);
    let wire = rig.device.wire().unwrap();
    let mut full = Full::new(second(wire));
    {
        let mut tx = wire.tx.lock();
        push(&mut tx, rig.peer.local_addr().unwrap(), |tx| !tx.is_empty());
        wire.flush(&mut tx);
        assert!(!tx.is_empty());
    }
    let waits = || wire.port.wait(wire.full_port(&wire.tx.lock()), Duration::ZERO);
    assert_eq!(wire.port.wait_for_room(Duration::ZERO), Ok(true));
    assert_eq!(waits(), Ok(false));
    full.make_room(second(wire));
    assert_eq!(waits(), Ok(true));
}

#[test]
fn what_nothing_sends_again_waits_for_room_once() {
    let rig = Rig::new("127.0.0.128,sports=2", "127.0.0.129");
    let _alone = alone(&rig.device);
    let wire = rig.device.wire().unwrap();
    let mut full = Full::new(second(wire));
    let has_room = |tx: &PacketOutbox| tx.has_room_for_any(MAX_PACKET);
    let make_room = || wire.make_room(wire.tx.lock(), &mut CqWriter::default());
    let is_stuck = || wire.is_stuck.load(Ordering::Relaxed);
    push(&mut wire.tx.lock(), rig.peer.local_addr().unwrap(), |tx| !has_room(tx));
    assert!(!is_stuck());
    // In vain; those behind it do not wait.
    for _ in 0..2 {
        assert!(!has_room(&make_room()));
        assert!(is_stuck());
    }
    full.make_room(second(wire));
    assert!(has_room(&make_room()));
    assert!(!is_stuck());
}

const MESSAGE: usize = 8 << 20;
const MTU: usize = 1_024;

/// An unreliable connection, which sends a long message.
struct Unreliable {
    qp: Arc<Qp>,
    message: Vec<u8>,
    lkey: u32,
}

impl Unreliable {
    fn new(device: &Arc<Device>, peer: IpAddr) -> Unreliable {
        use ibv_qp_attr_mask as Mask;
        let qp = queue_pair_of(device, ibv_qp_type::IBV_QPT_UC);
        let mut attr = none();
        (attr.port_num, attr.path_mtu) = (1, ibv_mtu::IBV_MTU_1024);
        attr.dest_qp_num = PEER_QPN;
        (attr.ah_attr.is_global, attr.ah_attr.port_num) = (1, 1);
        attr.ah_attr.grh.dgid.raw = gid_of(peer);
        let init = Mask::IBV_QP_PKEY_INDEX | Mask::IBV_QP_PORT | Mask::IBV_QP_ACCESS_FLAGS;
        let rtr =
            Mask::IBV_QP_AV | Mask::IBV_QP_PATH_MTU | Mask::IBV_QP_DEST_QPN | Mask::IBV_QP_RQ_PSN;
        for (state, mask) in [
            (ibv_qp_state::IBV_QPS_INIT, init),
            (ibv_qp_state::IBV_QPS_RTR, rtr),
            (ibv_qp_state::IBV_QPS_RTS, Mask::IBV_QP_SQ_PSN),
        ] {
            attr.qp_state = state;
            let mask = (mask | Mask::IBV_QP_STATE).0.cast_signed();
            // SAFETY: the queue pair is alive.
            assert_eq!(unsafe { (crate::table().modify_qp)(qp, &mut attr, mask) }, 0);
        }
        let mut message = vec![7; MESSAGE];
        // SAFETY: the memory lives as long as the test; the queue pair is alive.
        let (qp, mr) = unsafe {
            let mr = (crate::table().reg_mr)((*qp).pd, message.as_mut_ptr().cast(), MESSAGE, 0);
            (Qp::from_abi(qp).unwrap().keep(), &*mr)
        };
        Unreliable { qp, lkey: mr.lkey, message }
    }

    fn send(&self) {
        let (addr, length) = (self.message.as_ptr() as u64, MESSAGE as u32);
        let mut from = ibv_sge { addr, length, lkey: self.lkey };
        // SAFETY: a request of memory that is registered, and a live queue pair.
        unsafe {
            let opcode = ibv_wr_opcode::IBV_WR_SEND;
            let send_flags = ibv_send_flags::IBV_SEND_SIGNALED.0;
            let mut wr =
                ibv_send_wr { opcode, sg_list: &mut from, num_sge: 1, send_flags, ..zeroed() };
            assert_eq!(post_send(self.qp.as_abi(), &mut wr, &mut null_mut()), 0);
            // The next one has room.
            let mut wc: ibv_wc = zeroed();
            while ibv_poll_cq((*self.qp.as_abi()).send_cq, 1, &mut wc) == 0 {
                host::thread::yield_now();
            }
            assert_eq!(wc.status, ibv_wc_status::IBV_WC_SUCCESS);
        }
    }
}

#[test]
fn a_long_unreliable_message_does_not_hold_the_outbox() {
    let rig = Rig::new("127.0.0.130", "127.0.0.131");
    let wire = rig.device.wire().unwrap();
    let sender = Unreliable::new(&rig.device, rig.peer.local_addr().unwrap().ip());
    let sent = || wire.counts.sent.0.load(Ordering::Relaxed);
    // In one round this thread may have no processor.
    let found = (0..200).any(|_| {
        let before = sent();
        std::thread::scope(|scope| {
            let sending = scope.spawn(|| sender.send());
            loop {
                let tx = wire.tx.lock();
                let n = (sent() - before) as usize;
                drop(tx);
                if n > 0 {
                    break n < MESSAGE / MTU / 2;
                }
                // It has failed: its panic is this test's.
                if sending.is_finished() {
                    sending.join().unwrap();
                    break false;
                }
                host::thread::yield_now();
            }
        })
    });
    assert!(found, "the outbox is another's until all packets have gone");
}

/// Packets of one run count from 0; one that is sent alone is the first one.
#[test]
fn without_segmentation_each_packet_goes_by_itself() {
    for (text, expected) in [
        ("127.0.0.147", [0, 1, 2]),
        ("127.0.0.148,gso=on", [0, 1, 2]),
        ("127.0.0.149,gso=off", [0, 0, 0]),
    ] {
        let device = device_at(text);
        let (mut tx, to) =
            (device.wire().unwrap().tx.lock(), SocketAddr::from(([127, 0, 0, 1], 9)));
        let mut push = || tx.push(to, Marks::default(), 1_000).unwrap().0;
        assert_eq!([(); 3].map(|()| push()), expected, "{text}");
    }
}

/// The receiving side may want the lock while the sender waits for room: `loopback=wire`.
#[test]
fn a_wire_datagram_does_not_lock_its_target_queue_pair() {
    let device = without_thread("127.0.0.243,loopback=wire");
    let [from, to] = [(); 2].map(|()| queue_pair_of(&device, ibv_qp_type::IBV_QPT_UD));
    [from, to].iter().for_each(|qp| be_ready_for_datagrams(*qp));
    // SAFETY: both queue pairs are alive.
    let [from, to] = [from, to].map(|qp| unsafe { Qp::from_abi(qp) }.unwrap().keep());
    // SAFETY: zeroes are attributes.
    let mut attr: ibv_ah_attr = unsafe { zeroed() };
    (attr.is_global, attr.port_num) = (1, 1);
    attr.grh.dgid.raw = device.wire().unwrap().gid;
    // SAFETY: the domain is alive.
    let ah = unsafe { (crate::table().create_ah)((*from.as_abi()).pd, &mut attr) };
    assert!(!ah.is_null());
    let (locked, is_locked) = mpsc::channel();
    let (sent, is_sent) = mpsc::channel();
    std::thread::scope(|scope| {
        let responder = &to.responder;
        let holder = scope.spawn(move || {
            let _held = responder.lock();
            locked.send(()).unwrap();
            is_sent.recv_timeout(LONG)
        });
        is_locked.recv().unwrap();
        // SAFETY: zeroes are a request without memory; the queue pair and the handle are alive.
        unsafe {
            let mut wr: ibv_send_wr = zeroed();
            wr.opcode = ibv_wr_opcode::IBV_WR_SEND;
            let (remote_qpn, remote_qkey) = (to.num, 1);
            wr.wr.ud = ibv_send_wr__bindgen_ty_2__bindgen_ty_3 { ah, remote_qpn, remote_qkey };
            assert_eq!(post_send(from.as_abi(), &mut wr, &mut null_mut()), 0);
        }
        let _ = sent.send(());
        assert_eq!(holder.join().unwrap(), Ok(()), "it waits for the lock");
    });
    assert_eq!(device.wire().unwrap().packet_counters().sent, 1);
}
