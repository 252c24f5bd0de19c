//! Peers made by hand, which ask for more memory than an end allows, or than the system has: the
//! end refuses with the reason, and stays available. One test, in a process of its own: the limit
//! of addresses is the process's.

mod support;

use std::net::{TcpListener, TcpStream};

use rdma_conn::conn_core::handshake::{
    Endpoint, Frame, Options, Parameters, ProtocolId, Reason, decode,
};
use rdma_conn::conn_core::multicast::{Config as Asked, Terms};
use rdma_conn::conn_core::ring::Geometry;
use rdma_conn::conn_core::ring::offer::{HalfOffer, Offer, Place, RingOffer, Tail};
use rdma_conn::device::Device;
use rdma_conn::multicast::{Config, JoinError, Members, Policy, Rank, join};
use rdma_conn::send_recv::ConnectError;
use rdma_conn::{BufferedRead, BufferedWrite};
use rdma_conn::{buffered_read, buffered_write};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use support::raw::{parameters, read_frame, write_frame};
use support::{bounded, device};

const NO_QUEUE_PAIR: Endpoint = Endpoint { qp_num: 0, psn: 0, recv_depth: 0, max_message: 0 };

/// Returns what a leader may ask for, and no member has: rings of 4 GiB, 16 members.
fn most() -> Asked {
    Asked {
        members: 16,
        rank: Rank(15),
        senders: Members::first(16),
        window: 1 << 20,
        max_message: 1024,
        capacity: 1 << 32,
        is_mirrored: true,
        policy: Policy::Every(1),
        deadline_ns: 150_000,
        health_ns: 100_000_000,
        suspect_ns: 60_000_000_000,
    }
}

/// Accepts one member, asks for `asked`, and returns why the member refuses.
fn lead(listener: &TcpListener, device: &Device, asked: Asked) -> (Reason, String) {
    let (mut stream, _): (TcpStream, _) = listener.accept().unwrap();
    read_frame(&mut stream).expect("a Hello");
    let application = Terms(asked).encode();
    write_frame(
        &mut stream,
        &Frame::Accept(Parameters {
            protocol: ProtocolId::MULTICAST,
            initiator_to_acceptor: Some(NO_QUEUE_PAIR),
            acceptor_to_initiator: Some(NO_QUEUE_PAIR),
            application: &application,
            ..parameters(device, Options::NONE)
        }),
    );
    let answer = read_frame(&mut stream).expect("an answer");
    match decode(&answer).unwrap().frame {
        Frame::Refuse(refusal) => (refusal.reason, refusal.text.to_owned()),
        other => panic!("{other:?}"),
    }
}

/// Returns the error of the member with `config` if a leader asks for `asked`, and what the leader
/// hears.
fn ask(asked: Asked, config: Config) -> (JoinError, Reason, String) {
    let (device, listener) = (device(), TcpListener::bind("127.0.0.1:0").unwrap());
    let address = listener.local_addr().unwrap();
    std::thread::scope(|scope| {
        let leading = scope.spawn(|| lead(&listener, &device, asked));
        let error = join(address, &device, &config).map(|joined| joined.group).unwrap_err();
        let (reason, text) = leading.join().unwrap();
        (error, reason, text)
    })
}

/// Runs `body` with `bytes` more bytes of address space.
fn with_room_for<T>(bytes: u64, body: impl FnOnce() -> T) -> T {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: u64 = statm.split(' ').next().unwrap().parse().unwrap();
    let used = pages * rustix::param::page_size() as u64;
    let before = getrlimit(Resource::As);
    setrlimit(Resource::As, Rlimit { current: Some(used + bytes), ..before }).unwrap();
    let result = body();
    setrlimit(Resource::As, before).unwrap();
    result
}

/// A ring of 4 GiB, somewhere.
fn largest_ring(tail: Tail) -> Vec<u8> {
    let place = Place { addr: 4096, rkey: 7 };
    let geometry = Geometry::mirrored(1 << 32, 1024).unwrap();
    let ring = RingOffer { place, geometry, tail };
    let half = HalfOffer { control: Some(place), ring: Some(ring) };
    let offer = Offer { initiator_to_acceptor: Some(half), acceptor_to_initiator: None, user: b"" };
    let mut bytes = vec![0; 512];
    let length = offer.encode(&mut bytes).unwrap();
    bytes.truncate(length);
    bytes
}

fn one_way<'a>(device: &Device, protocol: ProtocolId, application: &'a [u8]) -> Parameters<'a> {
    let end = Endpoint { qp_num: 0x123, psn: 5, recv_depth: 0, max_message: 1024 };
    let initiator_to_acceptor = Some(end);
    Parameters { protocol, initiator_to_acceptor, application, ..parameters(device, Options::NONE) }
}

/// Returns the text of the refusal from the stream's other end.
fn refusal(stream: &mut TcpStream) -> String {
    let answer = read_frame(stream).expect("an answer");
    match decode(&answer).unwrap().frame {
        Frame::Refuse(refusal) => refusal.text.to_owned(),
        other => panic!("{other:?}"),
    }
}

/// Returns the error of a receiver of Buffered Read for a sender with a ring of 4 GiB, and what the
/// sender hears.
fn read_from_the_largest(config: &buffered_read::Config) -> (ConnectError, String) {
    let (device, listener) =
        (device(), rdma_conn::Listener::<BufferedRead>::bind("127.0.0.1:0").unwrap());
    let mut stream = TcpStream::connect(listener.local_addr()).unwrap();
    let application = largest_ring(Tail::Read);
    let hello = one_way(&device, ProtocolId::BUFFERED_READ, &application);
    write_frame(&mut stream, &Frame::Hello(hello));
    let mut receiver = rdma_conn::receiver::<BufferedRead>(&device, config, 1).unwrap();
    let incoming = listener.next().unwrap();
    let said = incoming.accept_into(&mut receiver, &device, config).unwrap_err();
    (said, refusal(&mut stream))
}

/// Returns the error of a sender of Buffered Write for a receiver with a ring of 4 GiB, and what
/// the receiver hears.
fn write_to_the_largest(config: &buffered_write::Config) -> (ConnectError, String) {
    let (device, listener) = (device(), TcpListener::bind("127.0.0.1:0").unwrap());
    let address = listener.local_addr().unwrap();
    std::thread::scope(|scope| {
        let accepting = scope.spawn(|| {
            let (mut stream, _) = listener.accept().unwrap();
            read_frame(&mut stream).expect("a Hello");
            let application = largest_ring(Tail::Written);
            let accept = one_way(&device, ProtocolId::BUFFERED_WRITE, &application);
            write_frame(&mut stream, &Frame::Accept(accept));
            refusal(&mut stream)
        });
        let said =
            rdma_conn::connect_sender::<BufferedWrite>(address, &device, config).unwrap_err();
        (said, accepting.join().unwrap())
    })
}

#[test]
fn a_peer_does_not_choose_how_much_memory_an_end_takes() {
    bounded(|| {
        rings();
        groups();
    });
}

fn rings() {
    let names = |text: &str| text.contains("4294967296") && text.contains("67108864");
    let limits = support::config::<buffered_read::Config>();
    let (said, heard) = read_from_the_largest(&limits);
    assert!(names(&said.to_string()) && names(&heard), "{said}: {heard}");
    let willing = buffered_read::Config { peer_ring_bytes: 1 << 32, ..limits };
    let (said, _) = with_room_for(1 << 30, || read_from_the_largest(&willing));
    assert!(said.to_string().contains("memory"), "{said}");

    let limits = support::config::<buffered_write::Config>();
    let (said, heard) = write_to_the_largest(&limits);
    assert!(names(&said.to_string()) && names(&heard), "{said}: {heard}");
    let willing = buffered_write::Config { max_peer_ring_bytes: 1 << 32, ..limits };
    let (said, _) = with_room_for(1 << 30, || write_to_the_largest(&willing));
    assert!(said.to_string().contains("allowed") || said.to_string().contains("memory"), "{said}");
}

fn groups() {
    let limits = support::group();
    let (error, reason, text) = ask(most(), limits);
    assert!(
        matches!(error, JoinError::OverLimit { field: "max_ring_bytes", value, limit }
            if value == 1 << 32 && limit == limits.max_ring_bytes),
        "{error:?}"
    );
    assert_eq!((reason, text), (Reason::PARAMETERS, error.to_string()));
    assert!(error.to_string().contains("4294967296"), "{error}");

    let (error, ..) = ask(most(), Config { max_members: 15, ..limits });
    let over = JoinError::OverLimit { field: "max_members", value: 16, limit: 15 };
    assert_eq!(error.to_string(), over.to_string());

    // A member that allows more than the system has: of the rings, and of their copies.
    let willing = Config { max_ring_bytes: 1 << 32, ..limits };
    let (error, ..) = with_room_for(1 << 30, || ask(most(), willing));
    assert!(matches!(error, JoinError::Connect(ConnectError::Device(_))), "{error:?}");
    let rings = Asked { capacity: 64 << 20, window: 1 << 14, ..most() };
    let mapped = 2 * rings.capacity * u64::from(rings.members);
    let (error, ..) = with_room_for(mapped + mapped / 4, || ask(rings, willing));
    assert!(matches!(error, JoinError::Connect(ConnectError::System { .. })), "{error:?}");
    assert!(error.to_string().contains("out of memory"), "{error}");
}
