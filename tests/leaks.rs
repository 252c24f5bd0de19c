//! Every way in which a connection can end releases everything: descriptors, as
//! counted here; and memory, under valgrind (`tests/leaks.sh`). One test, so that
//! no other test opens descriptors meanwhile.
//!
//! Not on rxe0: it counts what the process holds, for valgrind, under which no kernel is.
//! Shows: closing.

mod support;

use rdma_conn::Common;
use std::io::Write;
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use rdma_conn::conn_core::handshake::Options;
use rdma_conn::device::Device;
use rdma_conn::send_recv::{
    Config, ConnectError, Message, Receiver, RecvError, Reposting, Sender, SharedConfig, SharedPool,
};
use rdma_conn::{
    Connection, Listener, RecvHalf, SendHalf, SendRecv, WaitStrategy, connect_sender_over, join,
    join_shared, pair, receiver, receiver_shared,
};
use support::raw::{HandMadeEnd, Shape, receiver_for, sender_to};
use support::{PATIENCE, bounded, device, mortal, small};

const WINDOW: u32 = 4;

fn config() -> Config {
    let keepalive = Duration::from_millis(20);
    Config {
        common: Common {
            keepalive,
            transport: mortal(),
            wait: WaitStrategy::Block,
            ..small(WINDOW).common
        },
        ..small(WINDOW)
    }
}

fn connected(device: &Device, config: &Config) -> (Connection<SendRecv>, Connection<SendRecv>) {
    pair::<SendRecv>(device, device, config).unwrap()
}

fn exchange(sender: &mut Sender, receiver: &mut Receiver) -> Message {
    sender.send_acked(b"message").unwrap();
    receiver.recv().unwrap()
}

fn said_goodbye(device: &Device) {
    for pack_bytes in [0, 32] {
        let (mut left, mut right) = connected(device, &Config { pack_bytes, ..config() });
        drop(exchange(&mut left.sender, &mut right.receiver));
        let message = exchange(&mut left.sender, &mut right.receiver);
        right.receiver.free(message);
        left.sender.close().unwrap();
        right.sender.close().unwrap();
        assert_eq!(right.receiver.recv().unwrap_err(), RecvError::Closed);
        left.receiver.close();
    }
}

fn dropped_in_any_order(device: &Device) {
    for order in 0..4 {
        let (left, right) = connected(device, &config());
        let (Connection { sender: a, receiver: b }, Connection { sender: c, receiver: d }) =
            (left, right);
        match order {
            0 => drop((a, b, c, d)),
            1 => drop((d, c, b, a)),
            2 => drop((b, d, a, c)),
            _ => drop((c, a, d, b)),
        }
    }
}

fn dropped_with_work_under_way(device: &Device) {
    let (mut left, right) = connected(
        device,
        &Config { common: Common { linger: Duration::ZERO, ..config().common }, ..config() },
    );
    while left.sender.try_send(b"never received").is_ok() {}
    drop(left);
    drop(right);
}

fn messages_that_outlive_everything(device: &Device) {
    for pack_bytes in [0, 32] {
        let held = {
            let (mut left, mut right) = connected(device, &Config { pack_bytes, ..config() });
            [(); 3].map(|()| exchange(&mut left.sender, &mut right.receiver))
        };
        std::thread::spawn(move || assert!(held.iter().all(|m| **m == *b"message")))
            .join()
            .unwrap();
    }
}

fn accepted_from(device: &Device, inbox: &mut Receiver, shape: Shape) -> HandMadeEnd {
    let listener = Listener::<SendRecv>::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr();
    std::thread::scope(|scope| {
        let raw = scope.spawn(|| sender_to(address, device, shape));
        listener.next().unwrap().accept_into(inbox, device, &config()).unwrap();
        raw.join().unwrap()
    })
}

fn peers_that_die_or_lie(device: &Device) {
    for lies in [false, true] {
        let mut inbox = receiver::<SendRecv>(device, &config(), 1).unwrap();
        let mut raw = accepted_from(device, &mut inbox, Shape::default());
        raw.send(b"message");
        raw.drain();
        let held = inbox.recv().unwrap();
        let raw = lies.then(|| {
            raw.control(0x8000_0042);
            raw
        });
        inbox.recv().unwrap_err();
        drop((raw, inbox, held));

        let (mut near, mut far) = UnixStream::pair().unwrap();
        let shape = Shape { claimed_window: WINDOW, ..Shape::default() };
        let (mut sender, mut raw) = std::thread::scope(|scope| {
            let raw = scope.spawn(|| receiver_for(&mut far, device, shape));
            let sender =
                connect_sender_over::<SendRecv, _>(&mut near, device, &config(), b"").unwrap();
            (sender, raw.join().unwrap())
        });
        let raw = lies.then(|| {
            raw.control(0x8000_0042);
            raw
        });
        while sender.send(b"message").is_ok() {}
        drop((raw, sender));
    }
}

fn set_ups_that_fail(device: &Device) {
    let listener = Listener::<SendRecv>::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr();
    let mut junk = TcpStream::connect(address).unwrap();
    junk.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
    listener.next().unwrap_err();
    let mut inbox = receiver::<SendRecv>(device, &config(), 1).unwrap();
    let no_credits = Config { credits: false, ..config() };
    std::thread::scope(|scope| {
        let refused = scope.spawn(|| {
            connect_sender_over::<SendRecv, _>(
                &mut TcpStream::connect(address).unwrap(),
                device,
                &no_credits,
                b"",
            )
        });
        let incoming = listener.next().unwrap();
        incoming.accept_into(&mut inbox, device, &config()).unwrap_err();
        refused.join().unwrap().unwrap_err();
    });
    let large = Config { recv_depth: 100, ..config() };
    join::<SendRecv>(&mut inbox, device, device, &large).unwrap_err();
}

fn pool(device: &Device, reposting: Reposting) -> SharedPool {
    let config = SharedConfig {
        buffers: 2 * (WINDOW + SharedConfig::KEPT - 1),
        buffer_bytes: 64,
        max_peers: 2,
        reposting,
        repost_batch: 4,
    };
    SharedPool::new(device, config).unwrap()
}

fn shared_pools(device: &Device) {
    for reposting in Reposting::ALL {
        let pool = pool(device, reposting);
        // One pool, many receivers after another.
        for round in 0..3 {
            let mut inbox = receiver_shared::<SendRecv>(device, &config(), 2, &pool).unwrap();
            let mut add = || loop {
                match join_shared::<SendRecv>(&mut inbox, &pool, device, device, &config()) {
                    Ok(sender) => break sender,
                    Err(ConnectError::TooManyPeers(_)) => std::thread::yield_now(),
                    Err(e) => panic!("{e}"),
                }
            };
            let (mut one, mut two) = (add(), add());
            let held = [exchange(&mut one, &mut inbox), exchange(&mut two, &mut inbox)];
            // It borrows a buffer of the pool: the receiver has to be called.
            while two.try_send(b"never looked at").is_err() {
                assert!(matches!(inbox.try_recv(), Err(RecvError::Empty)));
            }
            drop(one);
            match round {
                0 => drop((inbox, two, held)),
                1 => drop((held, two, inbox)),
                _ => drop((two, inbox, held)),
            }
        }
    }
    // Messages that outlive the pool itself.
    for reposting in Reposting::ALL {
        let held = {
            let pool = pool(device, reposting);
            let mut inbox = receiver_shared::<SendRecv>(device, &config(), 1, &pool).unwrap();
            let mut sender =
                join_shared::<SendRecv>(&mut inbox, &pool, device, device, &config()).unwrap();
            exchange(&mut sender, &mut inbox)
        };
        assert_eq!(*held, *b"message");
    }
}

fn set_ups_that_fail_with_a_pool(device: &Device) {
    let pool = pool(device, Reposting::Lock);
    let mut inbox = receiver_shared::<SendRecv>(device, &config(), 2, &pool).unwrap();
    let unknown = Shape { options: Options(0x40), ..Shape::default() };
    let listener = Listener::<SendRecv>::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr();
    std::thread::scope(|scope| {
        let refused = scope.spawn(|| {
            use rdma_conn::conn_core::handshake::{Frame, Parameters};
            use support::raw::{parameters, read_frame, write_frame};
            let mut stream = TcpStream::connect(address).unwrap();
            let end = HandMadeEnd::new(device, unknown);
            let hello = Parameters {
                initiator_to_acceptor: Some(end.endpoint()),
                ..parameters(device, unknown.options)
            };
            write_frame(&mut stream, &Frame::Hello(hello));
            read_frame(&mut stream).unwrap();
        });
        let incoming = listener.next().unwrap();
        incoming.accept_into_shared(&mut inbox, &pool, device, &config()).unwrap_err();
        refused.join().unwrap();
    });
}

/// Name of an end, and the function that brings it about.
type NamedEnd = (&'static str, fn(&Device));

const ENDS: [NamedEnd; 8] = [
    ("goodbyes", said_goodbye),
    ("drops in any order", dropped_in_any_order),
    ("drops with work under way", dropped_with_work_under_way),
    ("messages that outlive everything", messages_that_outlive_everything),
    ("peers that die or lie", peers_that_die_or_lie),
    ("set-ups that fail", set_ups_that_fail),
    ("shared pools", shared_pools),
    ("set-ups that fail with a pool", set_ups_that_fail_with_a_pool),
];

fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

#[test]
fn every_end_gives_everything_back() {
    let device = device();
    for (name, end) in ENDS {
        // Once for whatever is opened once; after that the count has to stay the same.
        let (first, again) = (device.clone(), device.clone());
        bounded(move || end(&first));
        let before = descriptors();
        bounded(move || (0..3).for_each(|_| end(&again)));
        // A timer of the device may hold something for a moment longer, also before.
        let deadline = Instant::now() + PATIENCE;
        while descriptors() > before && Instant::now() < deadline {
            std::thread::yield_now();
        }
        let after = descriptors();
        assert!(after <= before, "{name}: {after} descriptors, {before} before");
    }
}
