use std::cell::Cell;
use std::io::Write;
use std::net::TcpListener;

use base::session::dial;
use rdma_conn::{SendRecv, connect_sender_over};

use super::*;
use crate::cli::ConnectionArgs;
use crate::protocol::Purpose;
use crate::session::{MeasurementIndex, TrafficParameters};

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

/// The first stranger is refused when the time is over. Each later one comes half of the time after
/// the one before was refused.
#[test]
fn a_stranger_that_is_refused_does_not_restart_the_wait() {
    const TIME: Duration = Duration::from_millis(200);
    const STRANGERS: u32 = 10;
    let (device, args) = (rdma_conn::device::soft().unwrap(), ConnectionArgs::default());
    let config = SendRecv::base(&args, Purpose::Stream, 16);
    let traffic = TrafficParameters::new::<SendRecv>(&args, &config, 16, false);
    let session = MeasurementIndex::only().session("pipe", 1, 0, traffic).encode().unwrap();
    let listener = listen::<SendRecv>("127.0.0.1:0".parse().unwrap()).unwrap();
    let address = listener.local_addr();
    let (is_over, judged) = (AtomicBool::new(false), Cell::new(0));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..STRANGERS {
                let Ok(mut stream) = dial(address) else { return };
                let made =
                    connect_sender_over::<SendRecv, _>(&mut stream, &device, &config, &session);
                assert!(made.is_err());
                let refused = host::time::now();
                while !is_over.load(Ordering::SeqCst) && host::time::since(refused) < TIME / 2 {
                    std::thread::yield_now();
                }
            }
        });
        let start = host::time::now();
        let judge = |_: &SessionParameters| {
            judged.set(judged.get() + 1);
            while host::time::since(start) < TIME {
                std::thread::yield_now();
            }
            Err("a stranger".to_owned())
        };
        let admitted = admitted::<SendRecv, ()>(&listener, "pipe", TIME, judge, |_, _| Ok(()));
        is_over.store(true, Ordering::SeqCst);
        assert!(admitted.unwrap().is_none());
        // A stranger that comes now is not left waiting.
        drop(listener);
    });
    assert!(judged.get() < STRANGERS, "all were judged");
}
