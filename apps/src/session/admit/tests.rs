use std::io::Write;
use std::net::TcpListener;

use base::session::dial;
use rdma_conn::SendRecv;

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
