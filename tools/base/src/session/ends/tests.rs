use std::io::{Read, Write};
use std::net::TcpListener;

use rdma_conn::send_recv::Config;
use rdma_conn::{SendRecv, connect_sender_over};

use super::*;

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
    let of = |error: ConnectError| out_of_reach(&CommandError::from(error).context("the copy"));
    assert_eq!(of(found()).as_deref(), Some(says));
    assert_eq!(of(told()), Some(format!("the peer refused: {says}")));
    assert_eq!(of(HandshakeError::TimedOut(Duration::from_secs(1)).into()), None);
}
