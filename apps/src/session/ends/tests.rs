use std::io::{Read, Write};
use std::net::TcpListener;

use rdma_conn::send_recv::Config;
use rdma_conn::{SendRecv, connect_sender_over};

use super::*;

#[test]
fn an_address_that_cannot_be_listened_on_is_explained() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap();
    let error = format!("{:#}", listen::<SendRecv>(address).unwrap_err());
    assert!(error.contains(&address.to_string()) && error.contains("another port"), "{error}");
    // An address for documentation: no machine has it.
    let error = format!("{:#}", listen::<SendRecv>("192.0.2.1:4711".parse().unwrap()).unwrap_err());
    assert!(error.contains("no such address"), "{error}");
}

#[test]
fn refused_connections_make_no_wait_longer() {
    let listener = listen::<SendRecv>("127.0.0.1:0".parse().unwrap()).unwrap();
    let strangers = [(); 8].map(|()| {
        let mut stream = dial(listener.local_addr()).unwrap();
        stream.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
        stream.set_nonblocking(true).unwrap();
        stream
    });
    assert!(next_peer::<SendRecv>(&listener, "bench", Duration::ZERO).unwrap().is_none());
    let waits = || strangers.iter().filter(|stranger| stranger.peek(&mut [0]).is_err()).count();
    while waits() == strangers.len() {
        std::thread::yield_now(); // what was written is on its way
    }
    assert_eq!(waits(), strangers.len() - 1, "they have not been answered");
}

#[test]
fn an_address_without_a_listener_is_explained() {
    let address = "127.0.0.1:1".parse().unwrap();
    let error = format!("{:#}", dial(address).unwrap_err());
    assert!(error.contains("nothing listens") && error.contains("--listen"), "{error}");
}

/// Returns the error of a connecting end about a program that answers with `answer`.
fn answered(answer: &'static [u8]) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let program = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        stream.read_exact(&mut [0; 16]).unwrap();
        stream.write_all(answer).unwrap();
    });
    let (device, config) = (rdma_conn::device::soft().unwrap(), Config::default());
    let mut stream = dial(address).unwrap();
    let error = connect_sender_over::<SendRecv, _>(&mut stream, &device, &config, b"").unwrap_err();
    program.join().unwrap();
    format!("{:#}", explain(error, address, "bench"))
}

#[test]
fn another_program_at_the_other_end_is_explained() {
    let error = answered(b"HTTP/1.1 400 Bad Request\r\n\r\n");
    assert!(error.contains("another program"), "{error}");
    assert!(error.contains("rdma-conn bench --listen"), "{error}");
    let error = answered(b"");
    assert!(error.contains("hung up") && error.contains("another program"), "{error}");
    let silent = HandshakeError::TimedOut(Duration::from_secs(10)).into();
    let error = explain(silent, "127.0.0.1:1".parse().unwrap(), "bench").to_string();
    assert!(error.contains("not answered for 10s") && error.contains("busy"), "{error}");
}

/// Copies have no protocol to choose.
#[test]
fn the_error_of_a_copy_names_no_flag_that_copies_lack() {
    let refused = || {
        let text = "it wants Direct Read, this is Buffered Read".to_owned();
        ConnectError::from(HandshakeError::Refused { reason: Reason::PROTOCOL, text })
    };
    let address = "127.0.0.1:1".parse().unwrap();
    let error = explain(refused(), address, "copy").to_string();
    assert!(error.contains("rdma-conn copy --listen") && !error.contains("--protocol"), "{error}");
    let error = explain(refused(), address, "pipe").to_string();
    assert!(error.contains("--protocol"), "{error}");
}

#[test]
fn ends_out_of_reach_are_told_the_flag_that_names_a_device() {
    let address = "127.0.0.1:1".parse().unwrap();
    let says = "the ends cannot reach each other: one is elsewhere";
    let found = || ConnectError::from(HandshakeError::OutOfReach("one is elsewhere".into()));
    let told = || {
        let text = found().to_string();
        ConnectError::from(HandshakeError::Refused { reason: Reason::UNREACHABLE, text })
    };
    let error = explain(told(), address, "bench").to_string();
    assert_eq!(error, format!("127.0.0.1:1 refused: {says} (--device)"));
    let error = explain(found(), address, "bench").to_string();
    assert_eq!(error, format!("cannot connect to 127.0.0.1:1: {says} (--device)"));
    let of = |error: ConnectError| out_of_reach(&Failure::from(error).context("the copy"));
    assert_eq!(of(found()).as_deref(), Some(says));
    assert_eq!(of(told()), Some(format!("the peer refused: {says}")));
    assert_eq!(of(HandshakeError::TimedOut(Duration::from_secs(1)).into()), None);
}
