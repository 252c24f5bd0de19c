//! Limits of set-ups, in virtual time: a peer that says nothing more is waited for no longer.
//!
//! Only on soft0: worlds make devices of their own.

use std::io::Write as _;
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use host::world::{self, Limits, Nature};
use host::{thread, time};
use rdma_conn::conn_core::handshake::{
    Endpoint, Frame, MAX_FRAME, Mtu, Options, Parameters, ProtocolId,
};
use rdma_conn::device::{self, Device};
use rdma_conn::error::ConnectError;
use rdma_conn::handshake::{HELLO_LIMIT, HandshakeError, READY_LIMIT, Stream as _};
use rdma_conn::multicast::{self, GATHERING, JoinError, Leader, SET_UP};
use rdma_conn::{Listener, SendRecv, send_recv};
use soft_rnic::{WorldDevice, WorldKind, WorldMachine};

/// Time that calls take besides.
const SLACK: Duration = Duration::from_secs(1);

/// Plays the end that waits, in a world: it gives up within the limit.
fn gives_up_within(limit: Duration, wait: impl FnOnce(&Device) + Send + 'static) {
    let (_, ended) = world::run(0, Nature::default(), Limits::default(), move || {
        let device = WorldDevice::new(WorldKind::Process(WorldMachine::new()));
        let opened = device::open(Some(device.name())).expect("a device");
        let start = time::now();
        wait(&opened);
        let took = time::since(start);
        assert!(took <= limit + SLACK, "{took:?} of {limit:?}");
    });
    if let Err(failure) = ended {
        panic!("{failure}");
    }
}

/// A peer that says a frame, and nothing more.
fn peer(address: SocketAddr, frame: &Frame<'_>) -> TcpStream {
    let mut stream = TcpStream::connect(address).expect("a backlog");
    say(&mut stream, frame);
    stream
}

fn say(stream: &mut TcpStream, frame: &Frame<'_>) {
    let mut bytes = [0; MAX_FRAME];
    let length = frame.encode(&mut bytes).expect("a frame");
    stream.write_all(&bytes[..length]).expect("a buffer");
}

fn hello(device: &Device, protocol: ProtocolId) -> Frame<'static> {
    let end = Some(Endpoint { qp_num: 0x123, psn: 5, recv_depth: 16, max_message: 64 });
    Frame::Hello(Parameters {
        protocol,
        options: Options::NONE,
        initiator_to_acceptor: end,
        acceptor_to_initiator: end,
        lid: 0,
        gid: device.context().choose_gid(1, None).expect("a GID").gid,
        mtu: Mtu::B1024,
        application: b"",
    })
}

fn is_late(error: &ConnectError) -> bool {
    matches!(error, ConnectError::Handshake(HandshakeError::TimedOut(_)))
}

#[test]
fn a_client_that_says_nothing_is_refused_in_time() {
    gives_up_within(HELLO_LIMIT, |_| {
        let listener = Listener::<SendRecv>::bind("127.0.0.1:0").expect("a port");
        let _silent = TcpStream::connect(listener.local_addr()).expect("a backlog");
        let refused = listener.next().expect_err("it says nothing");
        assert!(is_late(&refused), "{refused}");
    });
}

#[test]
fn an_initiator_that_is_never_ready_is_given_up_in_time() {
    gives_up_within(READY_LIMIT, |device| {
        let listener = Listener::<SendRecv>::bind("127.0.0.1:0").expect("a port");
        let _silent = peer(listener.local_addr(), &hello(device, ProtocolId::SEND_RECV));
        let incoming = listener.next().expect("a Hello");
        let refused = incoming.accept(device, &send_recv::Config::default());
        let refused = refused.expect_err("it is not ready");
        assert!(is_late(&refused), "{refused}");
    });
}

#[test]
fn a_group_whose_members_do_not_come_is_given_up_in_time() {
    gives_up_within(GATHERING, |device| {
        let config = multicast::Config { members: 2, ..multicast::Config::default() };
        let leader = Leader::bind("127.0.0.1:0").expect("a port");
        let gathered = leader.gather(device, &config, b"").map(drop).expect_err("one is missing");
        assert!(matches!(gathered, JoinError::Missing { came: 0, wanted: 1, .. }), "{gathered}");
    });
}

#[test]
fn a_group_whose_member_says_no_more_is_given_up_in_time() {
    gives_up_within(SET_UP, |device| {
        let config = multicast::Config { members: 2, ..multicast::Config::default() };
        let leader = Leader::bind("127.0.0.1:0").expect("a port");
        let mut member = peer(leader.local_addr(), &hello(device, ProtocolId::MULTICAST));
        thread::scope(|scope| {
            let accepts = || {
                member.await_input(SET_UP).expect("an Accept");
                say(&mut member, &Frame::Ready);
            };
            scope.spawn(accepts).expect("a thread");
            let gathered = leader.gather(device, &config, b"").map(drop).expect_err("it is silent");
            let JoinError::Connect(late) = &gathered else { panic!("{gathered}") };
            assert!(is_late(late), "{late}");
        });
    });
}
