//! A listener and its clients: one that sends nothing, or sends slowly, does not delay the
//! others.
//!
//! Shows: hostile peers.

mod support;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use rdma_conn::conn_core::handshake::{
    Endpoint, Frame, MAX_FRAME, Options, Parameters, Reason, decode,
};
use rdma_conn::handshake::HandshakeError;
use rdma_conn::send_recv::{Config, ConnectError};
use rdma_conn::{Listener, SendRecv, connect, connect_sender};
use support::raw::{parameters, read_frame};
use support::{PATIENCE, bounded, device, small};

fn listener() -> (Listener<SendRecv>, SocketAddr) {
    let listener = Listener::<SendRecv>::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr();
    (listener, address)
}

fn strangers(count: usize, address: SocketAddr) -> Vec<TcpStream> {
    (0..count).map(|_| TcpStream::connect(address).unwrap()).collect()
}

/// A Hello whose application says `name`.
fn hello(name: &[u8]) -> Vec<u8> {
    let end = Endpoint { qp_num: 0x123, psn: 5, recv_depth: 16, max_message: 64 };
    let hello = Parameters {
        initiator_to_acceptor: Some(end),
        application: name,
        ..parameters(&device(), Options::NONE)
    };
    let mut bytes = vec![0; MAX_FRAME];
    let length = Frame::Hello(hello).encode(&mut bytes).unwrap();
    bytes.truncate(length);
    bytes
}

#[test]
fn silent_strangers_delay_no_client() {
    bounded(|| {
        let (device, config) = (device(), small(4));
        let (listener, address) = listener();
        let mut inbox = rdma_conn::receiver::<SendRecv>(&device, &config, 1).unwrap();
        let _silent = strangers(10, address);
        std::thread::scope(|scope| {
            let real = scope.spawn(|| connect_sender::<SendRecv>(address, &device, &config));
            // The first client that has sent its Hello, and not the first that connected.
            let incoming = listener.next().unwrap();
            incoming.accept_into(&mut inbox, &device, &config).unwrap();
            real.join().unwrap().unwrap();
        });
    });
}

#[test]
fn of_too_many_strangers_the_first_ones_have_to_go() {
    bounded(|| {
        let (listener, address) = listener();
        let silent = strangers(100, address);
        let mut real = TcpStream::connect(address).unwrap();
        real.write_all(&hello(b"real")).unwrap();
        let mut turned_away = 0;
        let incoming = loop {
            match listener.next() {
                Ok(incoming) => break incoming,
                Err(ConnectError::Handshake(HandshakeError::TimedOut(_))) => turned_away += 1,
                Err(e) => panic!("{e}"),
            }
        };
        assert_eq!(incoming.application(), b"real");
        // There are 64 places besides the one that the real peer is given.
        assert_eq!(turned_away, 36);
        for (number, stream) in (0..).zip(&silent) {
            let expected = number < turned_away;
            assert_eq!(is_refused(stream, expected), expected, "stranger {number}");
        }
    });
}

/// Reports whether a refusal has arrived, or arrives soon if it is waited for.
fn is_refused(mut stream: &TcpStream, waits: bool) -> bool {
    stream.set_nonblocking(!waits).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut bytes = [0; MAX_FRAME];
    let read = stream.read(&mut bytes).unwrap_or(0);
    matches!(decode(&bytes[..read]).map(|d| d.frame), Ok(Frame::Refuse(_)))
}

#[test]
fn hellos_that_come_byte_by_byte_are_put_together() {
    bounded(|| {
        let (listener, address) = listener();
        let names = [b"one", b"two", b"six"];
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut streams = strangers(3, address);
                let hellos = names.map(|name| hello(name));
                for at in 0..hellos[0].len() {
                    for (stream, hello) in streams.iter_mut().zip(&hellos) {
                        stream.write_all(&hello[at..=at]).unwrap();
                    }
                }
                // Until they are refused, below.
                streams.iter_mut().for_each(|stream| drop(read_frame(stream)));
            });
            let incoming = names.map(|_| listener.next().unwrap());
            for name in names {
                assert!(incoming.iter().any(|i| i.application() == name), "{name:?}");
            }
            incoming.into_iter().for_each(|i| i.refuse("that is all"));
        });
    });
}

#[test]
fn a_wait_for_the_next_ends_with_its_time() {
    bounded(|| {
        let (listener, address) = listener();
        assert!(listener.next_timeout(Duration::ZERO).unwrap().is_none());
        assert!(listener.next_timeout(Duration::from_millis(1)).unwrap().is_none());
        let mut real = TcpStream::connect(address).unwrap();
        real.write_all(&hello(b"real")).unwrap();
        let incoming = listener.next_timeout(PATIENCE).unwrap().expect("the initiator");
        assert_eq!(incoming.application(), b"real");
    });
}

#[test]
fn threads_that_wait_at_once_get_one_each() {
    bounded(|| {
        let (listener, address) = listener();
        std::thread::scope(|scope| {
            let waiting = [(); 3].map(|()| scope.spawn(|| listener.next().unwrap()));
            let mut streams = strangers(3, address);
            for (stream, name) in streams.iter_mut().zip([b"a", b"b", b"c"]) {
                stream.write_all(&hello(name)).unwrap();
            }
            let mut names = waiting.map(|w| w.join().unwrap().application().to_vec());
            names.sort();
            assert_eq!(names, [b"a", b"b", b"c"]);
        });
    });
}

/// Whatever it is that cannot be at this end.
#[test]
fn an_initiator_hears_why_it_is_not_accepted() {
    bounded(|| {
        let device = device();
        let (listener, address) = listener();
        let impossible = Config { recv_depth: 0, ..small(4) };
        std::thread::scope(|scope| {
            let dialling =
                scope.spawn(|| connect::<SendRecv>(address, &device, &small(4)).unwrap_err());
            let here = listener.next().unwrap().accept(&device, &impossible).unwrap_err();
            let there = dialling.join().unwrap();
            let ConnectError::Handshake(HandshakeError::Refused { reason, text }) = there else {
                panic!("{there:?}");
            };
            assert_eq!((reason, text), (Reason::PARAMETERS, here.to_string()));
        });
    });
}
