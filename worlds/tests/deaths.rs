//! A killed peer is missed within the keepalive, also by a program that makes only one kind of call, and the reason
//! stays the reason; an abort, and a task that drops a half, do not wait for one that does not answer.
//!
//! Only on soft0: worlds make devices of their own.

use std::net::IpAddr;
use std::time::Duration;

use host::future::block_on;
use host::world::{self, Limits, Nature};
use host::{thread, time};
use rdma_conn::aio;
use rdma_conn::error::{CloseReason, RecvError, SendError};
use rdma_conn::{
    BufferedRead, BufferedWrite, Common, Connection, DirectRead, DirectWrite, Messages, Protocol,
    RecvHalf, SendHalf, SendRecv, SharedWrite, Ticket, device, join, receiver,
};
use soft_rnic::{NetworkNature, WorldDevice, WorldKind, WorldMachine, WorldNetwork};

const SEEDS: u64 = 2;
/// Between two calls: a program that looks after a count of them would be late.
const PACE: Duration = Duration::from_millis(100);
const PEER: usize = 1;
/// 67 ms, after which a device asks once more.
const TIMEOUT: u8 = 14;
/// After which it gives up: the request and seven more.
const RETRIES: Duration = Duration::from_nanos(8 * (4096 << TIMEOUT));

/// The call of a sender's program.
type SenderCall<S> = (&'static str, fn(&mut S, Ticket) -> Result<(), SendError>);

fn sender_calls<S: SendHalf>() -> [SenderCall<S>; 5] {
    [
        ("try_send", |sender, _| sender.try_send(b"eight in").map(drop)),
        ("send_timeout", |sender, _| sender.send_timeout(b"eight in", Duration::ZERO).map(drop)),
        ("try_reserve", |sender, _| sender.try_reserve(8).map(drop)),
        ("flush", |sender, _| sender.flush()),
        ("arm", |sender, _| sender.arm().map(drop)),
    ]
}

/// The call of a receiver's program.
type ReceiverCall<R> = (&'static str, fn(&mut R) -> Result<(), RecvError>);

fn receiver_calls<R: RecvHalf>() -> [ReceiverCall<R>; 4] {
    [
        ("try_recv", |receiver| receiver.try_recv().map(drop)),
        ("try_recv_each", |receiver| receiver.try_recv_each(|_, _| ()).map(drop)),
        ("recv_timeout", |receiver| receiver.recv_timeout(Duration::ZERO).map(drop)),
        ("arm", |receiver| receiver.arm().map(drop)),
    ]
}

fn in_a_world(what: &str, seed: u64, program: impl FnOnce() + Send + 'static) {
    let (_, ended) = world::run(seed, Nature::default(), Limits::default(), program);
    if let Err(failure) = ended {
        panic!("{what}, seed {seed}\n{failure}");
    }
}

/// The ends of a connection in two processes, of which the sender's is killed (0), or the receiver's, and what remains
/// of it is driven; with the other end, which is not.
fn with_killed<P: Protocol>(killed: usize, survive: impl FnOnce(P::Sender, P::Receiver, Ticket)) {
    with_killed_of::<P>(|_| (), killed, survive);
}

/// [`with_killed`], with settings of its own.
fn with_killed_of<P: Protocol>(
    set: impl FnOnce(&mut Common),
    killed: usize,
    survive: impl FnOnce(P::Sender, P::Receiver, Ticket),
) {
    let machine = WorldMachine::new();
    let devices: [WorldDevice; 2] =
        std::array::from_fn(|_| WorldDevice::new(WorldKind::Process(machine)));
    let [far, near] = [0, PEER].map(|at| device::open(Some(devices[at].name())).expect("a device"));
    let mut config = P::Config::default();
    config.as_mut().transport.timeout = TIMEOUT;
    set(config.as_mut());
    let mut inbox = receiver::<P>(&near, &config, 1).expect("a receiver");
    let mut sender = join::<P>(&mut inbox, &near, &far, &config).expect("a sender");
    let ticket = sender.send(b"the first").expect("room");
    sender.flush().expect("a peer");
    assert_eq!(&*inbox.recv().expect("a message"), b"the first");
    while !sender.is_acked(ticket).expect("a peer") {
        assert_eq!(inbox.try_recv().err(), Some(RecvError::Empty));
    }
    devices[killed].kill();
    survive(sender, inbox, ticket);
}

/// Calls at a pace until `call` says that the peer is lost, within the keepalive and the device's retries; and a pace
/// more for each call that it takes: for the two rounds of a keepalive, for the result of the probe, and to say so.
fn misses(mut call: impl FnMut() -> Option<CloseReason>) {
    let (start, limit) = (time::now(), Common::default().keepalive + RETRIES + 5 * PACE);
    let reason = loop {
        time::sleep(PACE);
        if let Some(reason) = call() {
            break reason;
        }
        assert!(time::since(start) <= limit, "nothing is missed within {limit:?}");
    };
    assert!(matches!(reason, CloseReason::PeerLost(_)), "{reason}");
}

fn senders_miss<P: Protocol>() {
    for (name, call) in sender_calls::<P::Sender>() {
        for seed in 0..SEEDS {
            in_a_world(name, seed, move || {
                with_killed::<P>(PEER, |mut sender, receiver, ticket| {
                    misses(|| match call(&mut sender, ticket) {
                        Err(SendError::Ended(reason)) => Some(reason),
                        Ok(()) | Err(SendError::Full(_) | SendError::TimedOut { .. }) => None,
                        Err(e) => panic!("{e}"),
                    });
                    drop((sender, receiver));
                });
            });
        }
    }
}

fn receivers_miss<P: Protocol>() {
    for (name, call) in receiver_calls::<P::Receiver>() {
        for seed in 0..SEEDS {
            in_a_world(name, seed, move || {
                with_killed::<P>(0, |sender, mut receiver, _| {
                    misses(|| match call(&mut receiver) {
                        Err(RecvError::Peer { reason, .. } | RecvError::Ended(reason)) => {
                            Some(reason)
                        }
                        // What is armed is ready: then the program asks.
                        Ok(()) => match receiver.try_recv() {
                            Err(RecvError::Peer { reason, .. }) => Some(reason),
                            _ => None,
                        },
                        Err(RecvError::Empty | RecvError::TimedOut) => None,
                        Err(e) => panic!("{e}"),
                    });
                    drop((sender, receiver));
                });
            });
        }
    }
}

macro_rules! each_connection {
    ($($name:ident: $protocol:ty),* $(,)?) => {$(
        mod $name {
            #[test]
            fn a_sender_misses_its_receiver() {
                super::senders_miss::<$protocol>();
            }

            #[test]
            fn a_receiver_misses_its_sender() {
                super::receivers_miss::<$protocol>();
            }

            #[test]
            fn the_reason_stays() {
                super::the_reason_stays::<$protocol>();
            }

            #[test]
            fn an_iteration_has_the_reason_once() {
                super::an_iteration_has_the_reason_once::<$protocol>();
            }

            #[test]
            fn an_abort_waits_for_nothing() {
                super::an_abort_waits_for_nothing::<$protocol>();
            }

            #[test]
            fn a_task_waits_for_no_goodbye() {
                super::a_task_waits_for_no_goodbye::<$protocol>();
            }
        }
    )*};
}

each_connection! {
    send_recv: super::SendRecv,
    buffered_read: super::BufferedRead,
    buffered_write: super::BufferedWrite,
    direct_read: super::DirectRead,
    direct_write: super::DirectWrite,
    shared_write: super::SharedWrite,
}

/// Every later call of both halves says of a lost peer what the first one has said.
fn the_reason_stays<P: Protocol>() {
    in_a_world("reason", 0, || {
        with_killed::<P>(0, |sender, mut receiver, _| {
            let lost = receiver.recv().expect_err("a dead peer");
            let RecvError::Peer { reason: reason @ CloseReason::PeerLost(_), .. } = lost else {
                panic!("{lost:?}");
            };
            let ended = RecvError::Ended(reason);
            assert_eq!(receiver.try_recv().expect_err("no peer"), ended);
            assert_eq!(receiver.recv().expect_err("no peer"), ended);
            assert_eq!(receiver.recv_timeout(PACE).expect_err("no peer"), ended);
            assert_eq!(receiver.try_recv_each(|_, _| ()), Err(ended));
            drop(sender);
        });
        with_killed::<P>(PEER, |mut sender, receiver, ticket| {
            let lost = loop {
                if let Err(lost) = sender.send_acked(b"eight in") {
                    break lost;
                }
            };
            assert!(matches!(lost, SendError::Ended(CloseReason::PeerLost(_))), "{lost:?}");
            assert_eq!(sender.try_send(b"eight in").expect_err("no peer"), lost);
            assert_eq!(sender.flush(), Err(lost.clone()));
            assert_eq!(sender.is_acked(ticket), Ok(true), "what was acknowledged stays so");
            assert_eq!(sender.close(), Err(lost));
            drop(receiver);
        });
    });
}

/// One that begins after the loss, too.
fn an_iteration_has_the_reason_once<P: Protocol>() {
    in_a_world("iteration", 0, || {
        with_killed::<P>(0, |sender, mut receiver, _| {
            let mut messages = Messages::new(&mut receiver);
            let lost = messages.next();
            let Some(Err(RecvError::Peer { reason: reason @ CloseReason::PeerLost(_), .. })) = lost
            else {
                panic!("{lost:?}");
            };
            assert!(messages.next().is_none() && messages.next().is_none());
            let mut messages = Messages::new(&mut receiver);
            let ended = messages.next().map(|next| next.map(drop));
            assert_eq!(ended, Some(Err(RecvError::Ended(reason))));
            assert!(messages.next().is_none());
            drop(sender);
        });
    });
}

/// An end that is on a device of its own, and a peer that does not answer any more.
fn beside_silence<P: Protocol>(play: impl FnOnce(&WorldDevice, Connection<P>)) {
    let network = WorldNetwork::new(NetworkNature::default()).expect("a network");
    let addresses = [[10, 0, 0, 1], [10, 0, 0, 2]].map(IpAddr::from);
    let devices = addresses.map(|address| network.device(address).expect("a device"));
    let [near, far] = [0, PEER].map(|at| device::open(Some(devices[at].name())).expect("a device"));
    let config = P::Config::default();
    let [mut here, mut there] =
        [&near, &far].map(|at| receiver::<P>(at, &config, 1).expect("a receiver"));
    let sender = join::<P>(&mut there, &far, &near, &config).expect("a sender");
    let back = join::<P>(&mut here, &near, &far, &config).expect("a sender");
    network.partition(addresses[0], addresses[1], Duration::from_secs(100));
    play(&devices[0], Connection { sender, receiver: here });
    back.abort();
    there.abort();
}

/// Reports whether a call waits for a peer that does not answer, as far as `linger` lets it.
fn lingers(call: impl FnOnce()) -> bool {
    let start = time::now();
    call();
    time::since(start) >= Common::default().linger / 100
}

/// The peer does not answer: to drop a half waits for it, and an abort does not.
fn an_abort_waits_for_nothing<P: Protocol>() {
    for aborts in [true, false] {
        in_a_world("abort", 0, move || {
            beside_silence::<P>(|_, connection| match aborts {
                true => assert!(!lingers(|| connection.abort())),
                false => assert!(lingers(|| drop(connection))),
            });
        });
    }
}

/// A task that drops halves leaves their goodbyes to other threads. After an abort there is nothing to be left.
fn a_task_waits_for_no_goodbye<P: Protocol>() {
    for aborts in [true, false] {
        in_a_world("task", 0, move || {
            beside_silence::<P>(|device, Connection { sender, receiver }| {
                let (sender, receiver) = (aio::Sender::new(sender), aio::Receiver::new(receiver));
                let task = async move {
                    if aborts {
                        sender.abort();
                        receiver.abort();
                    } else {
                        drop((sender, receiver));
                    }
                };
                assert!(!lingers(|| _ = block_on(task, None).expect("descriptors")));
                let is_left = device.left().iter().any(|(kind, _)| *kind == "queue pairs");
                assert_eq!(is_left, !aborts);
                // The other threads end before the devices do.
                time::sleep(5 * Common::default().linger);
            });
        });
    }
}

/// A shared sender is one of Buffered Read.
#[test]
fn an_abort_of_a_shared_sender_waits_for_nothing() {
    for aborts in [true, false] {
        in_a_world("shared", 0, move || {
            beside_silence::<BufferedRead>(|_, Connection { sender, receiver }| {
                let sender = sender.into_shared(4).expect("nothing was sent yet");
                match aborts {
                    true => assert!(!lingers(|| sender.abort())),
                    false => assert!(lingers(|| drop(sender))),
                }
                receiver.abort();
            });
        });
    }
}

/// The sender asks after its receiver when it is dropped, and not a keepalive interval later.
#[test]
fn a_buffered_read_sender_that_is_dropped_misses_its_receiver() {
    const LONG: Duration = Duration::from_secs(100);
    in_a_world("drop", 0, || {
        let set = |common: &mut Common| (common.keepalive, common.linger) = (LONG, LONG);
        with_killed_of::<BufferedRead>(set, PEER, |sender, receiver, _| {
            let start = time::now();
            drop(sender);
            let took = time::since(start);
            assert!(took <= RETRIES + PACE, "it took {took:?}");
            receiver.abort();
        });
    });
}

/// Threads of a sender that several share miss a receiver, too.
#[test]
fn a_shared_sender_misses_its_receiver() {
    in_a_world("shared", 0, || {
        let machine = WorldMachine::new();
        let devices: [WorldDevice; 2] =
            std::array::from_fn(|_| WorldDevice::new(WorldKind::Process(machine)));
        let [far, near] =
            [0, PEER].map(|at| device::open(Some(devices[at].name())).expect("a device"));
        let mut config = rdma_conn::buffered_read::Config::default();
        config.common.transport.timeout = TIMEOUT;
        let mut inbox = receiver::<BufferedRead>(&near, &config, 1).expect("a receiver");
        let sender = join::<BufferedRead>(&mut inbox, &near, &far, &config).expect("a sender");
        let sender = sender.into_shared(4).expect("nothing was sent yet");
        devices[PEER].kill();
        thread::scope(|scope| {
            for _ in 0..2 {
                let sends = || {
                    misses(|| match sender.try_send(b"eight in") {
                        Err(SendError::Ended(reason)) => Some(reason),
                        sent => sent.map(|_| None).expect("room"),
                    });
                };
                scope.spawn(sends).expect("a thread");
            }
        });
    });
}
