//! A receiver that outlives its senders: each takes a place while it is there, and
//! nothing when it and its last message have gone. Numbers are not used again.
//!
//! Shows: load.

mod support;

use rdma_conn::Common;
use std::time::Duration;

use rdma_conn::conn_core::control::Control;
use rdma_conn::device::Device;
use rdma_conn::send_recv::{
    Config, ConnectError, Message, Peer, Receiver, RecvError, Reposting, Sender, SharedConfig,
    SharedPool,
};
use rdma_conn::{
    Listener, RecvHalf, SendHalf, SendRecv, join, join_shared, receiver, receiver_shared,
};
use support::raw::{HandMadeEnd, Shape, try_sender_to};
use support::{NEVER, assert_content, bounded, content, device, hold, mortal, repeated, small};

const WINDOW: u32 = 4;
/// Buffers of one link.
const LINK_BYTES: u64 = (WINDOW as u64 + 1) * 64;
const WAYS: [Option<Reposting>; 4] =
    [None, Some(Reposting::Lock), Some(Reposting::Thread), Some(Reposting::Combining)];

/// CloseReason links go at once, or only when their place is needed.
const LINGERS: [Duration; 2] = [Duration::ZERO, NEVER];

fn lingering(linger: Duration) -> Config {
    // A receiver that is dropped waits as long for a goodbye that no peer takes.
    Config {
        common: Common {
            linger,
            keepalive: Duration::from_millis(20),
            transport: mortal(),
            ..small(WINDOW).common
        },
        ..small(WINDOW)
    }
}

fn pool(device: &Device, members: u32, reposting: Reposting) -> SharedPool {
    let config = SharedConfig {
        buffers: members * (WINDOW + SharedConfig::KEPT - 1),
        buffer_bytes: 64,
        max_peers: members,
        reposting,
        repost_batch: 4,
    };
    SharedPool::new(device, config).unwrap()
}

/// Joins as soon as there is a place: a reposting thread takes its time, and so does a
/// queue pair that is flushed.
fn add(to: &mut Receiver, pool: Option<&SharedPool>, device: &Device, config: &Config) -> Sender {
    loop {
        let joined = match pool {
            Some(pool) => join_shared::<SendRecv>(to, pool, device, device, config),
            None => join::<SendRecv>(to, device, device, config),
        };
        match joined {
            Ok(sender) => return sender,
            Err(ConnectError::TooManyPeers(_) | ConnectError::SharedPoolFull { .. }) => {
                let nothing = to.try_recv().unwrap_err();
                let is_over = matches!(nothing, RecvError::Closed | RecvError::Ended(_));
                assert!(is_over || nothing == RecvError::Empty, "{nothing:?}");
                std::thread::yield_now();
            }
            Err(e) => panic!("{e}"),
        }
    }
}

/// Sends `messages` messages, all of which arrive, and says goodbye.
fn exchange(mut sender: Sender, inbox: &mut Receiver, peer: Peer, messages: u64) {
    let stream = peer.0.into();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            for number in 0..messages {
                sender.send(&content(stream, number, 12)).unwrap();
            }
            sender.close().unwrap();
        });
        for number in 0..messages {
            let message = inbox.recv().unwrap();
            assert_eq!(message.peer(), peer);
            assert_content(&message, stream, number, 12);
        }
    });
}

#[test]
fn successive_senders_take_no_more_than_their_places() {
    const SENDERS: u32 = 100;
    const EACH: u64 = 10;
    for reposting in WAYS {
        for linger in LINGERS {
            bounded(move || {
                let (device, config) = (device(), lingering(linger));
                let pool = reposting.map(|how| pool(&device, 2, how));
                let mut inbox =
                    receiver_shared::<SendRecv>(&device, &config, 2, pool.as_ref()).unwrap();
                // One stays, all others join and leave.
                let mut steady = add(&mut inbox, pool.as_ref(), &device, &config);
                for number in 1..=SENDERS {
                    let guest = add(&mut inbox, pool.as_ref(), &device, &config);
                    exchange(guest, &mut inbox, Peer(number), EACH);
                    while inbox.peers() > 1 {
                        assert_eq!(inbox.try_recv().unwrap_err(), RecvError::Empty);
                    }
                    assert!(inbox.registered_bytes() <= 2 * LINK_BYTES);
                }
                steady.send_acked(b"still here").unwrap();
                assert_eq!(inbox.recv().unwrap().peer(), Peer(0));
                let stats = inbox.stats();
                assert_eq!(stats.messages, u64::from(SENDERS) * EACH + 1);
                // Also what those have done that are not there any more.
                assert!(stats.credits_sent >= u64::from(SENDERS), "{stats:?}");
                assert!(reposting.is_some() || stats.buffers_posted > stats.messages, "{stats:?}");
                // The kernel's rxe does not say what its queue pairs keep.
                let says_so = !device.name().starts_with("rxe");
                assert!(!says_so || stats.unaccounted_buffers == 0, "{stats:?}");
            });
        }
    }
}

#[test]
fn a_sender_that_has_gone_keeps_no_memory() {
    bounded(|| {
        let (device, config) = (device(), lingering(Duration::ZERO));
        let mut inbox = receiver::<SendRecv>(&device, &config, 3).unwrap();
        let senders =
            [(); 3].map(|()| join::<SendRecv>(&mut inbox, &device, &device, &config).unwrap());
        assert_eq!(inbox.registered_bytes(), 3 * LINK_BYTES);
        for (gone, mut sender) in (1..).zip(senders) {
            sender.send_acked(b"goodbye").unwrap();
            sender.close().unwrap();
            drop(inbox.recv().unwrap());
            while inbox.registered_bytes() > (3 - gone) * LINK_BYTES {
                inbox.try_recv().unwrap_err();
            }
        }
        assert_eq!(inbox.recv().unwrap_err(), RecvError::Closed);
    });
}

#[test]
fn a_place_is_taken_until_the_last_message_from_it_is_freed() {
    for linger in LINGERS {
        for elsewhere in [false, true] {
            bounded(move || {
                let (device, config) = (device(), lingering(linger));
                let mut inbox = receiver::<SendRecv>(&device, &config, 1).unwrap();
                let mut sender = join::<SendRecv>(&mut inbox, &device, &device, &config).unwrap();
                sender.send_acked(b"held").unwrap();
                sender.send_acked(b"as well").unwrap();
                sender.close().unwrap();
                let mut held = [(); 2].map(|()| Some(inbox.recv().unwrap()));
                assert_eq!(inbox.recv().unwrap_err(), RecvError::Closed);
                let free = |message: Option<Message>, inbox: &mut Receiver| match elsewhere {
                    true => std::thread::spawn(move || drop(message)).join().unwrap(),
                    false => inbox.free(message.unwrap()),
                };
                for message in &mut held {
                    let refused =
                        join::<SendRecv>(&mut inbox, &device, &device, &config).unwrap_err();
                    assert!(matches!(refused, ConnectError::TooManyPeers(1)), "{refused:?}");
                    assert_eq!(inbox.registered_bytes(), LINK_BYTES);
                    free(message.take(), &mut inbox);
                }
                let mut next = add(&mut inbox, None, &device, &config);
                next.send_acked(b"next").unwrap();
                let message = inbox.recv().unwrap();
                assert_eq!((&*message, message.peer()), (&b"next"[..], Peer(1)));
            });
        }
    }
}

/// Way in which a sender leaves that does not say goodbye as it should.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Exit {
    Dies,
    Lies,
    SendsTooMuch,
    GoesOnAfterItsGoodbye,
}

/// A sender that joins as soon as there is a place, and leaves in its way. What is left
/// of it stays until its end was noticed.
fn rogue(
    exit: Exit,
    inbox: &mut Receiver,
    pool: Option<&SharedPool>,
    device: &Device,
    config: &Config,
) {
    let mut raw = join_raw(inbox, pool, device, config);
    raw.send(b"honest");
    raw.drain();
    assert_eq!(*inbox.recv().unwrap(), *b"honest");
    let remains = match exit {
        Exit::Dies => {
            drop(raw);
            None
        }
        Exit::Lies => {
            raw.control(0x8000_0042);
            Some(raw)
        }
        Exit::SendsTooMuch => {
            raw.send(&[7; 65]);
            Some(raw)
        }
        Exit::GoesOnAfterItsGoodbye => {
            raw.control(Control::Fin.encode());
            raw.send(b"after");
            raw.drain();
            Some(raw)
        }
    };
    let mut over = RecvError::Closed;
    if exit != Exit::GoesOnAfterItsGoodbye {
        let error = inbox.recv().unwrap_err();
        let RecvError::Peer { peer, reason } = error else { panic!("{error:?}") };
        if peer == Peer(0) {
            // The only one so far.
            over = RecvError::Ended(reason);
        }
    }
    assert_eq!(inbox.recv().unwrap_err(), over);
    drop(remains);
}

fn join_raw(
    inbox: &mut Receiver,
    pool: Option<&SharedPool>,
    device: &Device,
    config: &Config,
) -> HandMadeEnd {
    let listener = Listener::<SendRecv>::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr();
    loop {
        let (raw, accepted) = std::thread::scope(|scope| {
            let raw = scope.spawn(|| try_sender_to(address, device, Shape::default()));
            let accepted = listener.next().unwrap().accept_into_shared(inbox, pool, device, config);
            (raw.join().unwrap(), accepted)
        });
        match (raw, accepted) {
            (Some(raw), Ok(_)) => return raw,
            (None, Err(ConnectError::TooManyPeers(_) | ConnectError::SharedPoolFull { .. })) => {
                inbox.try_recv().unwrap_err();
            }
            (_, accepted) => panic!("{accepted:?}"),
        }
    }
}

#[test]
fn a_sender_that_dies_or_lies_leaves_its_place_to_the_next() {
    for exit in [Exit::Dies, Exit::Lies, Exit::SendsTooMuch, Exit::GoesOnAfterItsGoodbye] {
        for reposting in WAYS {
            for linger in LINGERS {
                bounded(move || {
                    let (device, config) = (device(), lingering(linger));
                    let pool = reposting.map(|how| pool(&device, 1, how));
                    let mut inbox =
                        receiver_shared::<SendRecv>(&device, &config, 1, pool.as_ref()).unwrap();
                    for round in 0..repeated(5) as u32 {
                        rogue(exit, &mut inbox, pool.as_ref(), &device, &config);
                        let next = add(&mut inbox, pool.as_ref(), &device, &config);
                        exchange(next, &mut inbox, Peer(2 * round + 1), 20);
                        assert_eq!(inbox.recv().unwrap_err(), RecvError::Closed);
                    }
                });
            }
        }
    }
}

/// All its buffers are there for the next one, whatever the last one did with them.
#[test]
fn a_place_that_was_left_has_all_its_buffers() {
    for exit in [Exit::SendsTooMuch, Exit::GoesOnAfterItsGoodbye] {
        for reposting in WAYS {
            bounded(move || {
                let (device, config) = (device(), lingering(Duration::ZERO));
                let pool = reposting.map(|how| pool(&device, 1, how));
                let mut inbox =
                    receiver_shared::<SendRecv>(&device, &config, 1, pool.as_ref()).unwrap();
                for round in 0..repeated(10) {
                    rogue(exit, &mut inbox, pool.as_ref(), &device, &config);
                    let next = add(&mut inbox, pool.as_ref(), &device, &config);
                    fill_all(next, &mut inbox, round);
                }
            });
        }
    }
}

/// Has a message in each buffer at the same time.
fn fill_all(mut sender: Sender, inbox: &mut Receiver, stream: u64) {
    let held = hold(&mut sender, inbox, WINDOW.into(), stream);
    sender.close().unwrap();
    drop(held);
}
