//! Credits that are loans of a shared pool: whatever a sender does with its loan, the others go
//! on, and no message finds the receiver unready.
//!
//! Shows: hostile peers.
//! Alone on rxe0: counters of the device are compared, and no other test has packets under way.

mod support;

use rdma_conn::Common;
use std::os::unix::net::UnixStream;
use std::sync::Barrier;
use std::time::Duration;

use conn_core::control::Control;
use conn_core::credit::{CreditError, CreditWire};
use conn_core::handshake::Options;
use conn_core::loan::{LoanError, LoanWire, ReturnError, WantError};
use rdma_conn::device::Device;
use rdma_conn::send_recv::{
    CloseReason, Config, Full, Peer, Preset, ProtocolError, Receiver, RecvError, Reposting,
    SendError, Sender, SharedConfig, SharedPool, Transport,
};
use rdma_conn::{
    Listener, RecvHalf, SendHalf, SendRecv, connect_sender_over, join, join_shared, receiver,
    receiver_shared,
};
use support::raw::{HandMadeEnd, Shape, receiver_for, sender_to};
use support::{assert_content, bounded, content, counters, device, hold, mortal, rnr_since, small};

/// No second chance for a message that finds no buffer.
fn strict(unacked: u32) -> Config {
    let config = small(unacked);
    Config {
        common: Common {
            transport: Transport { rnr_retry: 0, ..config.common.transport },
            ..config.common
        },
        ..config
    }
}

fn pool(device: &Device, buffers: u32, max_peers: u32, reposting: Reposting) -> SharedPool {
    let sizes = SharedConfig { buffers, buffer_bytes: 64, max_peers, reposting, repost_batch: 4 };
    SharedPool::new(device, sizes).unwrap()
}

/// Sends one message, for which it may have to ask for a loan.
fn send_one(sender: &mut Sender, inbox: &mut Receiver, message: &[u8]) {
    while sender.try_send(message).is_err() {
        match inbox.try_recv() {
            Err(RecvError::Empty) => {}
            other => panic!("{other:?}"),
        }
    }
}

/// Takes one loan and uses one credit of it: some more remain, if the loan had more.
fn take_a_loan(sender: &mut Sender, inbox: &mut Receiver) {
    for _ in 0..2 {
        send_one(sender, inbox, b"one");
        assert_eq!(*inbox.recv().unwrap(), *b"one");
    }
}

/// Bytes of receive buffers of `peers` connections: with a queue for each, and of a pool for as
/// many.
fn registered(device: &Device, config: &Config, peers: u32) -> (u64, u64) {
    let mut inbox = receiver::<SendRecv>(device, config, peers).unwrap();
    let sender = |_| join::<SendRecv>(&mut inbox, device, device, config).unwrap();
    let senders: Vec<Sender> = (0..peers).map(sender).collect();
    let separate = inbox.registered_bytes();
    senders.into_iter().for_each(|sender| sender.close().unwrap());
    let pool = SharedPool::new(device, SharedConfig::new(config, peers)).unwrap();
    (separate, pool.registered_bytes())
}

#[test]
fn a_pool_registers_half_at_8_peers_and_hardly_more_at_64() {
    let device = device();
    for preset in [Preset::Unbatched, Preset::Batched] {
        let config =
            Config { common: support::config::<Config>().common, ..Config::preset_for(preset, 64) };
        let (of_2, of_8) = (registered(&device, &config, 2), registered(&device, &config, 8));
        assert!(of_2.1 * 10 <= of_2.0 * 6, "{of_2:?}");
        assert!(of_8.1 * 2 <= of_8.0, "{of_8:?}");
        let of_pool = |peers| {
            let sizes = SharedConfig::new(&config, peers);
            u64::from(sizes.buffers) * u64::from(sizes.buffer_bytes)
        };
        assert_eq!(of_pool(8), of_8.1);
        assert!(of_pool(64) * 2 <= of_8.1 * 3, "{} beside {}", of_pool(64), of_8.1);
        // Three buffers of each connection more.
        assert_eq!(of_pool(256) - of_pool(128), 3 * 128 * 64);
    }
    // With short queues, as for long messages, the three buffers of each connection are most of the
    // pool.
    for config in [Config::preset(Preset::Sequential), Config::preset_for(Preset::Batched, 1 << 20)]
    {
        for peers in [1, 2, 8, 64] {
            let sizes = SharedConfig::new(&config, peers);
            sizes.validate().unwrap();
            assert!(sizes.buffers >= 3 * peers + config.recv_depth, "{sizes:?}");
        }
    }
}

/// Requests for loans and returned credits are no messages: a receiver that has taken all messages
/// and stops is seen as a close.
#[test]
fn loan_requests_do_not_count_as_messages_at_a_close() {
    bounded(|| {
        let (device, config) = (device(), strict(16));
        let pool = pool(&device, 32, 1, Reposting::Lock);
        let mut inbox = receiver_shared::<SendRecv>(&device, &config, 1, &pool).unwrap();
        let mut sender =
            join_shared::<SendRecv>(&mut inbox, &pool, &device, &device, &config).unwrap();
        (0..10).for_each(|_| take_a_loan(&mut sender, &mut inbox));
        drop(inbox);
        assert_eq!(sender.close(), Ok(()));
    });
}

/// The last buffer is held, and the sender's request for a loan is unanswered: a close does not
/// wait for the receiver.
#[test]
fn a_sender_closes_while_its_request_for_a_loan_is_unanswered() {
    bounded(|| {
        let (device, config) = (device(), strict(16));
        let before = counters(&device);
        let pool = pool(&device, SharedConfig::KEPT, 1, Reposting::Lock);
        let mut inbox = receiver_shared::<SendRecv>(&device, &config, 1, &pool).unwrap();
        let mut sender =
            join_shared::<SendRecv>(&mut inbox, &pool, &device, &device, &config).unwrap();
        sender.try_send(b"the share").unwrap();
        assert_eq!(sender.try_send(b"asks").unwrap_err(), SendError::Full(Full::Credits));
        assert_eq!(sender.close(), Ok(()));
        assert_eq!(*inbox.recv().unwrap(), *b"the share");
        assert_eq!(inbox.recv().unwrap_err(), RecvError::Closed);
        assert_eq!(rnr_since(&device, &before), 0);
        // Its place in the pool can be had again.
        let mut sender =
            join_shared::<SendRecv>(&mut inbox, &pool, &device, &device, &config).unwrap();
        send_one(&mut sender, &mut inbox, b"again");
        assert_eq!(sender.close(), Ok(()));
        assert_eq!(*inbox.recv().unwrap(), *b"again");
    });
}

/// Those that have stopped hold more credits than loans may take together; they neither send nor
/// make any other call.
#[test]
fn senders_that_take_a_loan_and_stop_leave_the_others_going() {
    const STOPPED: u32 = 24;
    const GOING: u32 = 8;
    for reposting in Reposting::ALL {
        bounded(move || {
            let (device, config) = (device(), strict(16));
            let before = counters(&device);
            let peers = STOPPED + GOING;
            let pool = pool(&device, 3 * peers + 64, peers, reposting);
            let mut inbox = receiver_shared::<SendRecv>(&device, &config, peers, &pool).unwrap();
            let mut join =
                || join_shared::<SendRecv>(&mut inbox, &pool, &device, &device, &config).unwrap();
            let mut stopped: Vec<Sender> = (0..STOPPED).map(|_| join()).collect();
            let going: Vec<Sender> = (0..GOING).map(|_| join()).collect();
            stopped.iter_mut().for_each(|sender| take_a_loan(sender, &mut inbox));
            let all_have_ended = Barrier::new(GOING as usize + 1);
            std::thread::scope(|scope| {
                for (peer, mut sender) in (STOPPED..).zip(going) {
                    let all_have_ended = &all_have_ended;
                    scope.spawn(move || {
                        for number in 0..500 {
                            sender.send(&content(peer.into(), number, 20)).unwrap();
                        }
                        sender.close().unwrap();
                        all_have_ended.wait();
                    });
                }
                let mut numbers = [0; GOING as usize];
                while numbers != [500; GOING as usize] {
                    let message = inbox.recv().unwrap();
                    let Peer(peer) = message.peer();
                    let number = &mut numbers[(peer - STOPPED) as usize];
                    assert_content(&message, peer.into(), *number, 20);
                    *number += 1;
                    inbox.free(message);
                }
                // A sender closes while the receiver is not called.
                all_have_ended.wait();
                while inbox.peers() > STOPPED as usize {
                    assert_eq!(inbox.try_recv().unwrap_err(), RecvError::Empty);
                }
            });
            // They can continue as well.
            for (peer, sender) in (0..).zip(&mut stopped) {
                send_one(sender, &mut inbox, b"here");
                sender.flush().unwrap();
                assert_eq!(inbox.recv().unwrap().peer(), Peer(peer));
            }
            assert_eq!(rnr_since(&device, &before), 0, "{reposting:?}");
        });
    }
}

/// A sender that keeps a large loan and makes a call now and then gives the loan back in one of
/// these calls, and not message by message.
#[test]
fn what_is_recalled_comes_back_with_the_next_call() {
    const LENT: u32 = 64;
    for reposting in Reposting::ALL {
        bounded(move || {
            let (device, config) = (device(), strict(16));
            let before = counters(&device);
            let pool = pool(&device, 6 + LENT, 2, reposting);
            let mut inbox = receiver_shared::<SendRecv>(&device, &config, 2, &pool).unwrap();
            let mut join =
                || join_shared::<SendRecv>(&mut inbox, &pool, &device, &device, &config).unwrap();
            let (mut idle, mut busy) = (join(), join());
            // Its share, loans of 4 and 8, and a part of one of 16: ten are left at least.
            for _ in 0..16 {
                send_one(&mut idle, &mut inbox, b"used");
                assert_eq!(*inbox.recv().unwrap(), *b"used");
            }
            let (mut held, mut sent, mut calls) = (0, 0, 0);
            // Looks without news, and how many of them before the next call.
            let (mut looks, mut wait) = (0, 10_000);
            let mut kept = Vec::new();
            // All that can be lent, and its share.
            while held <= LENT {
                if sent <= LENT && busy.try_send(b"held").is_ok() {
                    sent += 1;
                }
                match inbox.try_recv() {
                    Ok(message) if message.peer() == Peer(1) => {
                        (held, looks) = (held + 1, 0);
                        kept.push(message);
                    }
                    Ok(message) => assert_eq!(*message, *b"now and then"),
                    Err(RecvError::Empty) => {
                        looks += 1;
                        std::thread::yield_now();
                    }
                    Err(e) => panic!("{e}"),
                }
                // Nothing more arrives without a call. (Messages may still be on their way, and
                // there is no room for another: the next call comes after twice as many looks.)
                if looks > wait {
                    calls += u32::from(idle.try_send(b"now and then").is_ok());
                    (looks, wait) = (0, 2 * wait);
                }
            }
            assert!(calls < 8, "{reposting:?}: {calls} calls, and nothing was given back");
            assert_eq!(rnr_since(&device, &before), 0);
        });
    }
}

/// A sender that dies with a loan leaves nothing behind.
#[test]
fn a_sender_that_dies_with_a_loan_gives_it_back() {
    bounded(|| {
        for reposting in Reposting::ALL {
            let device = device();
            let keepalive = Duration::from_millis(20);
            let config = Config {
                common: Common { transport: mortal(), keepalive, ..small(8).common },
                ..small(8)
            };
            let pool = pool(&device, 6 + 8, 2, reposting);
            let (mut inbox, mut raw) = hostile(&device, &config, &pool, 2);
            let mut other =
                join_shared::<SendRecv>(&mut inbox, &pool, &device, &device, &config).unwrap();
            borrow(&mut raw, &mut inbox);
            raw.send(b"of its loan");
            raw.drain();
            assert_eq!(*inbox.recv().unwrap(), *b"of its loan");
            drop(raw);
            // Its device does not answer any more.
            match inbox.recv() {
                Err(RecvError::Peer { peer: Peer(0), reason: CloseReason::PeerLost(_) }) => {}
                other => panic!("{other:?}"),
            }
            drop(hold(&mut other, &mut inbox, 9, 3));
        }
    });
}

/// A receiver of a shared pool, and a hand-made sender to it.
fn hostile(
    device: &Device,
    config: &Config,
    pool: &SharedPool,
    peers: u32,
) -> (Receiver, HandMadeEnd) {
    let mut victim = receiver_shared::<SendRecv>(device, config, peers, pool).unwrap();
    let listener = Listener::<SendRecv>::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr();
    let raw = std::thread::scope(|scope| {
        let raw = scope.spawn(|| sender_to(address, device, Shape::default()));
        listener.next().unwrap().accept_into_shared(&mut victim, pool, device, config).unwrap();
        raw.join().unwrap()
    });
    (victim, raw)
}

/// The position in a LOAN or a credit, when it has arrived.
fn answer(raw: &mut HandMadeEnd, inbox: &mut Receiver) -> u32 {
    let (_, imm) = std::thread::scope(|scope| {
        let answered = scope.spawn(|| raw.receive());
        while !answered.is_finished() {
            assert_eq!(inbox.try_recv().unwrap_err(), RecvError::Empty);
        }
        answered.join().unwrap()
    });
    match Control::decode(imm.unwrap()).unwrap() {
        Control::Loan(wire) => wire.get(),
        Control::Credit(wire) => wire.get(),
        other => panic!("{other:?}"),
    }
}

/// Uses the share up and asks for a loan, before the receiver looks: it gets 4 credits.
fn borrow(raw: &mut HandMadeEnd, inbox: &mut Receiver) {
    raw.send(b"its share");
    raw.control(Control::Want.encode());
    raw.drain();
    assert_eq!(*inbox.recv().unwrap(), *b"its share");
    assert_eq!(answer(raw, inbox), 5);
}

/// Returns the close reason for a sender that breaks the rules in this way, after it has used its
/// share and borrowed 4 credits. Another sender of the pool stays connected.
fn cut_off(lie: impl Fn(&mut HandMadeEnd, &mut Receiver) + Send + Copy + 'static) -> CloseReason {
    bounded(move || {
        let (device, config) = (device(), small(8));
        let pool = pool(&device, 6 + 16, 2, Reposting::Combining);
        let (mut inbox, mut raw) = hostile(&device, &config, &pool, 2);
        let mut other =
            join_shared::<SendRecv>(&mut inbox, &pool, &device, &device, &config).unwrap();
        borrow(&mut raw, &mut inbox);
        lie(&mut raw, &mut inbox);
        // All has arrived before the receiver looks: an idle one grants the share again after each
        // message.
        raw.drain();
        let ended = loop {
            match inbox.recv() {
                Ok(message) => assert_eq!(*message, *b"honest"),
                Err(RecvError::Peer { peer: Peer(0), reason: ended }) => break ended,
                Err(e) => panic!("{e}"),
            }
        };
        // Nothing of the pool is lost by it.
        drop(hold(&mut other, &mut inbox, 17, 3));
        ended
    })
}

fn give_back(position: u64) -> u32 {
    Control::Return(LoanWire::of_position(position)).encode()
}

#[test]
fn a_sender_that_lies_about_its_loan_is_cut_off() {
    let overrun = cut_off(|raw, _| (0..5).for_each(|_| raw.send(b"honest")));
    assert_eq!(overrun, CloseReason::Protocol(ProtocolError::Overrun));
    let early = cut_off(|raw, _| raw.control(Control::Want.encode()));
    assert_eq!(early, CloseReason::Protocol(ProtocolError::Want(WantError::Early { credits: 4 })));
    let flood = cut_off(|raw, _| {
        (0..4).for_each(|_| raw.send(b"honest"));
        (0..3).for_each(|_| raw.control(Control::Want.encode()));
    });
    assert_eq!(flood, CloseReason::Protocol(ProtocolError::Want(WantError::Repeated)));
    // More than it has, nothing, and what it has used; all of it twice.
    for (position, possible) in [(6, 4), (1, 4), (0, 4), (1 << 20, 4)] {
        let lie = cut_off(move |raw, _| raw.control(give_back(position)));
        assert_eq!(
            lie,
            CloseReason::Protocol(ProtocolError::Return(ReturnError { possible })),
            "{position}"
        );
    }
    let twice = cut_off(|raw, _| (0..2).for_each(|_| raw.control(give_back(4))));
    assert_eq!(twice, CloseReason::Protocol(ProtocolError::Return(ReturnError { possible: 1 })));
    let used = cut_off(|raw, _| {
        raw.control(give_back(4));
        (0..2).for_each(|_| raw.send(b"honest"));
    });
    assert_eq!(used, CloseReason::Protocol(ProtocolError::Overrun), "what was given back is gone");
    for control in [Control::Recall, Control::Loan(LoanWire::of_position(9))] {
        let imm = control.encode();
        let other = cut_off(move |raw, _| raw.control(imm));
        assert_eq!(other, CloseReason::Protocol(ProtocolError::Control(imm)));
    }
}

/// Returns the error of a sender with a receiver that lends and lies.
fn lied_to(lies: Vec<Control>) -> SendError {
    bounded(move || {
        let (device, config) = (device(), small(8));
        let (mut near, mut far) = UnixStream::pair().unwrap();
        let shape = Shape { options: Options::LOANS, claimed_window: 9, ..Shape::default() };
        let (mut sender, mut raw) = std::thread::scope(|scope| {
            let sender = scope
                .spawn(|| connect_sender_over::<SendRecv, _>(&mut near, &device, &config, b""));
            let raw = receiver_for(&mut far, &device, shape);
            (sender.join().unwrap().unwrap(), raw)
        });
        sender.send_acked(b"its share").unwrap();
        lies.iter().for_each(|lie| raw.control(lie.encode()));
        raw.drain();
        loop {
            match sender.try_send(b"more") {
                Ok(_) | Err(SendError::Full(_)) => {}
                Err(e) => return e,
            }
        }
    })
}

#[test]
fn a_receiver_that_lies_about_loans_is_seen() {
    fn loan(position: u64) -> Control {
        Control::Loan(LoanWire::of_position(position))
    }
    fn credit(position: u64) -> Control {
        Control::Credit(CreditWire::of_position(position))
    }
    let violation = |lies: &[Control]| match lied_to(lies.to_vec()) {
        SendError::Ended(CloseReason::Protocol(violation)) => violation,
        other => panic!("{other:?}"),
    };
    assert_eq!(violation(&[loan(5)]), ProtocolError::Loan(LoanError::Unasked));
    let impossible = CreditError::Impossible { ahead: 10, room: 9 };
    assert_eq!(violation(&[credit(11)]), ProtocolError::Credit(impossible));
    assert_eq!(violation(&[credit(0)]), ProtocolError::Credit(CreditError::Backwards { by: 1 }));
    let other = violation(&[Control::Recall, Control::Recall, Control::Want]);
    assert_eq!(other, ProtocolError::Control(Control::Want.encode()));
}
