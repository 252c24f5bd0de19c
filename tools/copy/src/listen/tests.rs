use std::net::TcpStream;

use rdma_conn::direct_read::{Buffer, connect_over};

use super::*;

/// Has `serve` refuse a sender; returns what the sender is told, and whether its place is free.
fn refused_by(serve: impl FnOnce(Incoming, Hand)) -> (String, bool) {
    let (device, underway) = (rdma_conn::device::soft().unwrap(), Underway::default());
    let listener = Listener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr();
    let refused = std::thread::scope(|scope| {
        let sender = scope.spawn(|| {
            let mut stream = TcpStream::connect(address).unwrap();
            connect_over::<Buffer, _>(&mut stream, &device, &Config::default(), b"").map(drop)
        });
        let incoming = listener.next().unwrap();
        let hand = underway.enter(incoming.from(), CopyLimits::of_process()).unwrap();
        serve(incoming, hand);
        sender.join().unwrap()
    });
    let is_free = underway.interrupt(Interrupted::from_name("SIGTERM"), <[_]>::is_empty);
    (refused.unwrap_err().to_string(), is_free)
}

#[test]
fn a_sender_for_which_no_thread_is_left_is_refused() {
    let (why, is_free) = refused_by(|incoming, hand| {
        let no_thread = |_: Box<dyn FnOnce() + Send>| -> io::Result<()> {
            Err(io::ErrorKind::WouldBlock.into())
        };
        serve_aside((incoming, hand), |_, _| panic!("there is no thread"), no_thread);
    });
    assert!(why.contains("there is no thread for another copy"), "{why}");
    assert!(is_free, "its place is taken");
}

#[test]
fn a_sender_is_served_by_the_thread_that_was_started() {
    let (why, is_free) = refused_by(|incoming, hand| {
        let refuse = |incoming: Incoming, _| incoming.refuse("the other thread refuses");
        let thread = |work: Box<dyn FnOnce() + Send>| -> io::Result<()> {
            work();
            Ok(())
        };
        serve_aside((incoming, hand), refuse, thread);
    });
    assert!(why.contains("the other thread refuses"), "{why}");
    assert!(is_free, "its place is taken");
}
