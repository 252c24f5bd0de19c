//! Set-up with peers that speak something else, too little, too much, or do not fit:
//! they are refused with a reason, and the listener stays available.
//!
//! Shows: hostile peers.

mod support;

use rdma_conn::Common;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use rdma_conn::conn_core::handshake::{
    Endpoint, Frame, MAX_FRAME, Options, Parameters, ProtocolId, Reason, Refusal, decode,
};
use rdma_conn::device::Device;
use rdma_conn::handshake::HandshakeError;
use rdma_conn::send_recv::{Config, ConnectError, RecvError, Transport};
use rdma_conn::{
    Listener, RecvHalf, SendHalf, SendRecv, connect, connect_over, connect_sender,
    connect_sender_over, receiver,
};
use support::raw::{HandMadeEnd, Shape, parameters, read_frame, write_frame};
use support::{bounded, device, small};

/// Returns what the listener said about `initiator`, and what the initiator heard; then a good
/// connection has to succeed.
fn answer_to(
    initiator: impl FnOnce(TcpStream) -> Option<Vec<u8>> + Send,
) -> (String, Option<(Reason, String)>) {
    let (device, config) = (device(), small(4));
    let listener = Listener::<SendRecv>::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr();
    let mut inbox = receiver::<SendRecv>(&device, &config, 1).unwrap();
    std::thread::scope(|scope| {
        let bad = scope.spawn(move || initiator(TcpStream::connect(address).unwrap()));
        let said = match listener.next() {
            Err(e) => e,
            Ok(incoming) => incoming.accept_into(&mut inbox, &device, &config).unwrap_err(),
        };
        let heard = bad.join().unwrap().map(|bytes| refusal(&bytes));
        let good = scope.spawn(|| connect_sender::<SendRecv>(address, &device, &config));
        let peer = listener.next().unwrap().accept_into(&mut inbox, &device, &config);
        let mut sender = good.join().unwrap().unwrap();
        peer.unwrap();
        sender.send_acked(b"good").unwrap();
        assert_eq!(*inbox.recv().unwrap(), *b"good");
        drop(sender);
        assert_eq!(inbox.recv().unwrap_err(), RecvError::Closed);
        (said.to_string(), heard)
    })
}

fn refusal(bytes: &[u8]) -> (Reason, String) {
    match decode(bytes).unwrap().frame {
        Frame::Refuse(Refusal { reason, text }) => (reason, text.to_owned()),
        other => panic!("not refused: {other:?}"),
    }
}

/// Writes `bytes` and reads the answer.
fn say(bytes: Vec<u8>) -> impl FnOnce(TcpStream) -> Option<Vec<u8>> + Send {
    move |mut stream| {
        stream.write_all(&bytes).unwrap();
        read_frame(&mut stream)
    }
}

fn encoded(frame: &Frame<'_>) -> Vec<u8> {
    let mut bytes = vec![0; MAX_FRAME];
    let length = frame.encode(&mut bytes).unwrap();
    bytes.truncate(length);
    bytes
}

/// A Hello that would be accepted.
fn hello(device: &Device) -> Parameters<'static> {
    let end = Endpoint { qp_num: 0x123, psn: 5, recv_depth: 16, max_message: 64 };
    Parameters { initiator_to_acceptor: Some(end), ..parameters(device, Options::NONE) }
}

#[test]
fn junk_is_refused_with_the_reason() {
    let junk: [Vec<u8>; 4] = [
        b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n".to_vec(),
        vec![0; 64],
        vec![0xff; 4096],
        b"RDMACONM0000000000000000".to_vec(),
    ];
    for bytes in junk {
        let (said, heard) = bounded(move || answer_to(say(bytes)));
        let (reason, text) = heard.expect("a refusal");
        assert_eq!(reason, Reason::PROTOCOL);
        assert_eq!(text, said.replace("the handshake failed: ", ""));
        assert!(said.contains("does not speak this protocol"), "{said}");
    }
}

#[test]
fn another_version_is_refused_as_such() {
    bounded(|| {
        let mut bytes = encoded(&Frame::Hello(hello(&device())));
        // Magic, then the version in network or host order: both bytes are wrong.
        bytes[8..10].copy_from_slice(&[0x7f, 0x7f]);
        let (said, heard) = answer_to(say(bytes));
        assert_eq!(heard.unwrap().0, Reason::VERSION, "{said}");
    });
}

#[test]
fn another_protocol_is_refused_as_such() {
    bounded(|| {
        let other = Parameters { protocol: ProtocolId(9), ..hello(&device()) };
        let (said, heard) = answer_to(say(encoded(&Frame::Hello(other))));
        assert_eq!(heard.unwrap().0, Reason::PROTOCOL);
        assert!(said.contains("protocol 9"), "{said}");
    });
}

#[test]
fn unknown_options_are_refused() {
    bounded(|| {
        let other = Parameters { options: Options(0x40), ..hello(&device()) };
        let (_, heard) = answer_to(say(encoded(&Frame::Hello(other))));
        let (reason, text) = heard.unwrap();
        assert_eq!(reason, Reason::PARAMETERS);
        assert!(text.contains("0x40"), "{text}");
    });
}

#[test]
fn one_end_with_credits_and_one_without_do_not_fit() {
    bounded(|| {
        let other = Parameters { options: Options::NO_CREDITS, ..hello(&device()) };
        let (_, heard) = answer_to(say(encoded(&Frame::Hello(other))));
        let (reason, text) = heard.unwrap();
        assert_eq!(reason, Reason::PARAMETERS);
        assert!(text.contains("credits"), "{text}");
    });
}

#[test]
fn a_sender_without_room_for_credits_is_refused() {
    bounded(|| {
        let end = Endpoint { qp_num: 0x123, psn: 5, recv_depth: 0, max_message: 64 };
        let other = Parameters { initiator_to_acceptor: Some(end), ..hello(&device()) };
        let (_, heard) = answer_to(say(encoded(&Frame::Hello(other))));
        assert_eq!(heard.unwrap().0, Reason::PARAMETERS);
    });
}

#[test]
fn an_initiator_that_only_receives_is_refused_by_a_receiver() {
    bounded(|| {
        let hello = hello(&device());
        let other = Parameters {
            initiator_to_acceptor: None,
            acceptor_to_initiator: hello.initiator_to_acceptor,
            ..hello
        };
        let (_, heard) = answer_to(say(encoded(&Frame::Hello(other))));
        assert_eq!(heard.unwrap().0, Reason::PARAMETERS);
    });
}

#[test]
fn a_frame_out_of_order_is_refused() {
    bounded(|| {
        let (said, heard) = answer_to(say(encoded(&Frame::Ready)));
        assert_eq!(heard.unwrap().0, Reason::PROTOCOL);
        assert!(said.contains("expected Hello"), "{said}");
    });
}

#[test]
fn a_second_hello_is_refused_and_takes_no_place() {
    bounded(|| {
        let twice = |mut stream: TcpStream| {
            let hello = encoded(&Frame::Hello(hello(&device())));
            stream.write_all(&hello).unwrap();
            let accept = read_frame(&mut stream).unwrap();
            assert!(matches!(decode(&accept).unwrap().frame, Frame::Accept(_)));
            stream.write_all(&hello).unwrap();
            read_frame(&mut stream)
        };
        let (said, heard) = answer_to(twice);
        assert!(said.contains("expected Ready"), "{said}");
        assert_eq!(heard.expect("a refusal").0, Reason::PROTOCOL);
    });
}

#[test]
fn an_initiator_that_goes_away_takes_no_place() {
    bounded(|| {
        let silent = |stream: TcpStream| {
            stream.shutdown(Shutdown::Both).unwrap();
            None
        };
        answer_to(silent);
        let cut_off = |mut stream: TcpStream| {
            let hello = encoded(&Frame::Hello(hello(&device())));
            stream.write_all(&hello[..hello.len() - 1]).unwrap();
            None
        };
        answer_to(cut_off);
        let after_accept = |mut stream: TcpStream| {
            stream.write_all(&encoded(&Frame::Hello(hello(&device())))).unwrap();
            read_frame(&mut stream).unwrap();
            None
        };
        answer_to(after_accept);
    });
}

/// No peer is connected that messages or a goodbye could be delivered to.
#[test]
fn a_set_up_that_fails_does_not_linger() {
    bounded(|| {
        let linger = Duration::from_secs(86_400);
        // About retries: 17 s for each try.
        let transport = Transport { timeout: 22, ..support::living() };
        let (device, config) = (
            device(),
            Config { common: Common { linger, transport, ..small(4).common }, ..small(4) },
        );
        let listener = Listener::<SendRecv>::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut stream = TcpStream::connect(address).unwrap();
                let hello = hello(&device);
                let end = hello.initiator_to_acceptor;
                let both = Parameters { acceptor_to_initiator: end, ..hello };
                stream.write_all(&encoded(&Frame::Hello(both))).unwrap();
                read_frame(&mut stream).unwrap();
            });
            listener.next().unwrap().accept(&device, &config).unwrap_err();
        });
    });
}

#[test]
fn a_refusal_after_accept_takes_no_place() {
    bounded(|| {
        let refuse = |mut stream: TcpStream| {
            stream.write_all(&encoded(&Frame::Hello(hello(&device())))).unwrap();
            read_frame(&mut stream).unwrap();
            let refusal = Refusal { reason: Reason::BUSY, text: "changed my mind" };
            write_frame(&mut stream, &Frame::Refuse(refusal));
            None
        };
        let (said, _) = answer_to(refuse);
        assert!(said.contains("changed my mind"), "{said}");
    });
}

#[test]
fn one_way_and_two_ways_do_not_fit_and_both_hear_it() {
    bounded(|| {
        let (device, config) = (device(), small(4));
        let listener = Listener::<SendRecv>::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr();
        std::thread::scope(|scope| {
            let one_way = scope.spawn(|| connect_sender::<SendRecv>(address, &device, &config));
            let incoming = listener.next().unwrap();
            assert!(incoming.is_one_way());
            incoming.accept(&device, &config).unwrap_err();
            let refused = one_way.join().unwrap().unwrap_err();
            let ConnectError::Handshake(HandshakeError::Refused { .. }) = refused else {
                panic!("{refused:?}");
            };
        });
    });
}

#[test]
fn a_listener_that_refuses_gives_its_reason() {
    bounded(|| {
        let (device, config) = (device(), small(4));
        let listener = Listener::<SendRecv>::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr();
        std::thread::scope(|scope| {
            let refused = scope.spawn(|| connect::<SendRecv>(address, &device, &config));
            listener.next().unwrap().refuse("not on Saturdays");
            match refused.join().unwrap().unwrap_err() {
                ConnectError::Handshake(HandshakeError::Refused { text, .. }) => {
                    assert_eq!(text, "not on Saturdays");
                }
                other => panic!("{other:?}"),
            }
            let good = scope.spawn(|| connect::<SendRecv>(address, &device, &config));
            let mut here = listener.next().unwrap().accept(&device, &config).unwrap();
            let mut there = good.join().unwrap().unwrap();
            there.sender.send_acked(b"good").unwrap();
            assert_eq!(*here.receiver.recv().unwrap(), *b"good");
        });
    });
}

#[test]
fn what_the_application_says_arrives_and_too_much_is_refused() {
    bounded(|| {
        let (device, config) = (device(), small(4));
        let listener = Listener::<SendRecv>::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr();
        let said = [7u8; 512];
        std::thread::scope(|scope| {
            let connecting = scope.spawn(|| {
                let mut stream = TcpStream::connect(address).unwrap();
                connect_over::<SendRecv, _>(&mut stream, &device, &config, &said)
            });
            let incoming = listener.next().unwrap();
            assert_eq!(incoming.application(), [7; 512]);
            assert!(!incoming.is_one_way());
            incoming.accept(&device, &config).unwrap();
            connecting.join().unwrap().unwrap();
        });
        let (mut near, _far) = UnixStream::pair().unwrap();
        let refused =
            connect_sender_over::<SendRecv, _>(&mut near, &device, &config, &[7; 513]).unwrap_err();
        assert!(
            matches!(refused, ConnectError::Handshake(HandshakeError::Unfit(_))),
            "{refused:?}"
        );
    });
}

/// Returns what the library's initiator makes of an acceptor that answers with `bytes`.
fn answered_with(bytes: Vec<u8>) -> (HandshakeError, Option<Vec<u8>>) {
    let (device, config) = (device(), small(4));
    let (mut near, mut far) = UnixStream::pair().unwrap();
    std::thread::scope(|scope| {
        let acceptor = scope.spawn(move || {
            read_frame(&mut far).unwrap();
            far.write_all(&bytes).unwrap();
            far.shutdown(Shutdown::Write).unwrap();
            read_frame(&mut far)
        });
        let refused =
            connect_sender_over::<SendRecv, _>(&mut near, &device, &config, b"").unwrap_err();
        drop(near);
        let heard = acceptor.join().unwrap();
        match refused {
            ConnectError::Handshake(e) => (e, heard),
            other => panic!("{other:?}"),
        }
    })
}

#[test]
fn an_acceptor_that_speaks_something_else_is_an_error() {
    bounded(|| {
        assert!(matches!(
            answered_with(b"HTTP/1.1 400 Bad".to_vec()).0,
            HandshakeError::Malformed(_)
        ));
        assert!(matches!(answered_with(Vec::new()).0, HandshakeError::Stream(_)));
        let ready = encoded(&Frame::Ready);
        assert!(matches!(
            answered_with(ready).0,
            HandshakeError::OutOfOrder { expected: "Accept" }
        ));
        let accept = encoded(&Frame::Accept(hello(&device())));
        assert!(matches!(answered_with(accept[..30].to_vec()).0, HandshakeError::Stream(_)));
    });
}

#[test]
fn an_accept_that_does_not_fit_is_refused() {
    bounded(|| {
        let good = hello(&device());
        let backwards = Parameters {
            initiator_to_acceptor: None,
            acceptor_to_initiator: good.initiator_to_acceptor,
            ..good
        };
        let options = Parameters { options: Options(0x80), ..good };
        let protocol = Parameters { protocol: ProtocolId(3), ..good };
        let no_credits = Parameters { options: Options::NO_CREDITS, ..good };
        let no_window = Parameters {
            initiator_to_acceptor: Some(Endpoint {
                recv_depth: 0,
                ..good.initiator_to_acceptor.unwrap()
            }),
            ..good
        };
        for accept in [backwards, options, no_credits, no_window] {
            let (error, heard) = answered_with(encoded(&Frame::Accept(accept)));
            assert!(matches!(error, HandshakeError::Unfit(_)), "{error:?}");
            assert_eq!(refusal(&heard.unwrap()).0, Reason::PARAMETERS);
        }
        let (error, heard) = answered_with(encoded(&Frame::Accept(protocol)));
        assert!(matches!(error, HandshakeError::OtherProtocol { theirs: 3, ours: 1 }), "{error:?}");
        assert_eq!(refusal(&heard.unwrap()).0, Reason::PROTOCOL);
    });
}

/// Only the handshake is read from the stream: the bytes that follow are the application's.
#[test]
fn the_stream_goes_on_after_the_handshake() {
    bounded(|| {
        let (device, config) = (device(), small(4));
        let (mut near, mut far) = UnixStream::pair().unwrap();
        std::thread::scope(|scope| {
            let device = &device;
            let acceptor = scope.spawn(move || {
                let hello = read_frame(&mut far).unwrap();
                let end = HandMadeEnd::new(device, Shape::default());
                let Frame::Hello(peer) = decode(&hello).unwrap().frame else { panic!() };
                end.connect(device, &peer, &peer.initiator_to_acceptor.unwrap());
                let accept = Parameters {
                    initiator_to_acceptor: Some(end.endpoint()),
                    ..parameters(device, Options::NONE)
                };
                let both = [encoded(&Frame::Accept(accept)), b"and now to you".to_vec()].concat();
                far.write_all(&both).unwrap();
                read_frame(&mut far).unwrap();
                end
            });
            connect_sender_over::<SendRecv, _>(&mut near, device, &config, b"").unwrap();
            let mut rest = [0; 14];
            near.read_exact(&mut rest).unwrap();
            assert_eq!(rest, *b"and now to you");
            acceptor.join().unwrap();
        });
    });
}

#[test]
fn an_address_without_a_listener_is_an_error() {
    let address: SocketAddr = "127.0.0.1:1".parse().unwrap();
    let refused =
        connect::<SendRecv>(address, &device(), &support::config::<Config>()).unwrap_err();
    let ConnectError::Unreached { address: named, .. } = refused else { panic!("{refused:?}") };
    assert_eq!(named, address);
}
