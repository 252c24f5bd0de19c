//! Peers that break the protocol: hand-made ends that connect properly, and then
//! lie. Each lie gives threads that wait its typed error, and affects no other peer.
//!
//! Shows: hostile peers.

mod support;

use rdma_conn::Common;
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use rdma_conn::conn_core::control::{Control, Taken};
use rdma_conn::conn_core::credit::{CreditError, CreditWire};
use rdma_conn::conn_core::handshake::Options;
use rdma_conn::conn_core::loan::LoanWire;
use rdma_conn::device::Device;
use rdma_conn::send_recv::{
    CloseReason, Config, ConnectError, Message, Peer, ProtocolError, Receiver, RecvError,
    Reposting, SendError, Sender, SharedConfig, SharedPool,
};
use rdma_conn::verbs_safe::WcStatus;
use rdma_conn::{
    Listener, RecvHalf, SendHalf, SendRecv, WaitStrategy, connect_sender_over, join_shared,
    receiver_shared,
};
use support::raw::{HandMadeEnd, Shape, begin_sender, receiver_for, sender_to};
use support::{assert_content, bounded, content, device, hold, small, too_long};

const WINDOW: u32 = 4;

/// A receiver of the library, and a hand-made sender to it.
fn victim_receiver(
    device: &Device,
    config: &Config,
    options: Options,
    peers: u32,
    pool: Option<&SharedPool>,
) -> (Receiver, HandMadeEnd, Listener<SendRecv>) {
    let mut victim = receiver_shared::<SendRecv>(device, config, peers, pool).unwrap();
    let listener = Listener::<SendRecv>::bind("127.0.0.1:0").unwrap();
    let shape = Shape { options, ..Shape::default() };
    let raw = join_raw(&listener, &mut victim, device, config, shape, pool);
    (victim, raw, listener)
}

fn join_raw(
    listener: &Listener<SendRecv>,
    victim: &mut Receiver,
    device: &Device,
    config: &Config,
    shape: Shape,
    pool: Option<&SharedPool>,
) -> HandMadeEnd {
    let address = listener.local_addr();
    std::thread::scope(|scope| {
        let raw = scope.spawn(|| sender_to(address, device, shape));
        listener.next().unwrap().accept_into_shared(victim, pool, device, config).unwrap();
        raw.join().unwrap()
    })
}

/// A sender of the library, and a hand-made receiver of its messages.
fn victim_sender(device: &Device, config: &Config, shape: Shape) -> (Sender, HandMadeEnd) {
    let (mut near, mut far) = UnixStream::pair().unwrap();
    std::thread::scope(|scope| {
        let raw = scope.spawn(move || receiver_for(&mut far, device, shape));
        let sender = connect_sender_over::<SendRecv, _>(&mut near, device, config, b"").unwrap();
        (sender, raw.join().unwrap())
    })
}

fn credit(position: u64) -> u32 {
    Control::Credit(CreditWire::of_position(position)).encode()
}

fn ended(error: RecvError) -> CloseReason {
    match error {
        RecvError::Peer { peer: Peer(0), reason: ended } => ended,
        other => panic!("{other:?}"),
    }
}

/// Returns the close reason of a receiver that is told `lie` after two honest messages.
fn told_to_a_receiver(options: Options, lie: impl FnOnce(&mut HandMadeEnd)) -> CloseReason {
    let device = device();
    let (mut victim, mut raw, _) = victim_receiver(&device, &small(WINDOW), options, 1, None);
    let honest = |number| match options.contains(Options::PACKED) {
        true => [&12u32.to_le_bytes()[..], &content(0, number, 12)].concat(),
        false => content(0, number, 12),
    };
    raw.send(&honest(0));
    raw.send(&honest(1));
    lie(&mut raw);
    assert_content(&victim.recv().unwrap(), 0, 0, 12);
    assert_content(&victim.recv().unwrap(), 0, 1, 12);
    let ended = ended(victim.recv().unwrap_err());
    // Then no peer is left, for this reason.
    assert_eq!(victim.recv().unwrap_err(), RecvError::Ended(ended.clone()));
    assert_eq!(victim.peers(), 0);
    ended
}

#[test]
fn control_that_means_nothing_to_a_receiver_ends_the_peer() {
    let stop = Control::Stop(Taken::of_count(2)).encode();
    for imm in [0x8000_0000, 0x8000_0002, 0x8000_0003, u32::MAX, credit(0), credit(7), stop] {
        let ended = bounded(move || told_to_a_receiver(Options::NONE, |raw| raw.control(imm)));
        assert_eq!(ended, CloseReason::Protocol(ProtocolError::Control(imm)));
    }
}

#[test]
fn a_message_without_a_credit_ends_the_peer() {
    bounded(|| {
        let device = device();
        let (mut victim, mut raw, _) =
            victim_receiver(&device, &small(WINDOW), Options::NONE, 1, None);
        // The buffer that is kept for the goodbye takes the one too many.
        for number in 0..=u64::from(WINDOW) {
            raw.send(&content(0, number, 12));
        }
        let held: Vec<Message> = (0..WINDOW).map(|_| victim.recv().unwrap()).collect();
        let reason = ended(victim.recv().unwrap_err());
        assert_eq!(reason, CloseReason::Protocol(ProtocolError::Overrun));
        for (number, message) in (0..).zip(&held) {
            assert_content(message, 0, number, 12);
        }
        drop(held);
        assert_eq!(victim.recv().unwrap_err(), RecvError::Ended(reason));
    });
}

#[test]
fn a_message_longer_than_the_buffers_ends_the_peer() {
    let ended = bounded(|| told_to_a_receiver(Options::NONE, |raw| raw.send(&[7; 65])));
    let CloseReason::PeerLost(error) = ended else { panic!("{ended:?}") };
    assert_eq!(error.cause.status, too_long());
}

#[test]
fn a_malformed_pack_ends_the_peer() {
    let record = |length: u32, bytes: usize| [&length.to_le_bytes()[..], &vec![1; bytes]].concat();
    let lies = [vec![], vec![1, 2, 3], record(5, 4), record(u32::MAX, 4), record(8, 0)];
    for lie in lies {
        let shown = format!("{lie:?}");
        let ended = bounded(move || told_to_a_receiver(Options::PACKED, |raw| raw.send(&lie)));
        assert!(
            matches!(ended, CloseReason::Protocol(ProtocolError::Pack(_))),
            "{shown}: {ended:?}"
        );
    }
}

#[test]
fn what_follows_a_violation_is_not_handed_out() {
    let ended = bounded(|| {
        told_to_a_receiver(Options::NONE, |raw| {
            raw.control(0x8000_0007);
            raw.send(b"and now an order");
        })
    });
    assert_eq!(ended, CloseReason::Protocol(ProtocolError::Control(0x8000_0007)));
}

#[test]
fn what_follows_a_goodbye_is_not_handed_out() {
    bounded(|| {
        for reposting in [None, Some(Reposting::Lock), Some(Reposting::Combining)] {
            let (device, config) = (device(), small(WINDOW));
            let pool = reposting.map(|how| pool(&device, 2, how));
            let (mut victim, mut raw, _) =
                victim_receiver(&device, &config, Options::NONE, 1, pool.as_ref());
            raw.send(b"before");
            raw.control(Control::Fin.encode());
            raw.send(b"after");
            assert_eq!(*victim.recv().unwrap(), *b"before");
            assert_eq!(victim.recv().unwrap_err(), RecvError::Closed);
            raw.drain();
            assert_eq!(victim.try_recv().unwrap_err(), RecvError::Closed, "{reposting:?}");
            drop(victim);
            // Nothing of the pool is lost by it.
            if let Some(pool) = pool {
                let mut next = receiver_shared::<SendRecv>(&device, &config, 2, &pool).unwrap();
                let mut join = || {
                    join_shared::<SendRecv>(&mut next, &pool, &device, &device, &config).unwrap()
                };
                let (mut a, mut b) = (join(), join());
                a.send_acked(b"a").unwrap();
                b.send_acked(b"b").unwrap();
            }
        }
    });
}

/// FIN is the last message of a sender, whatever follows it.
#[test]
fn a_peer_that_goes_on_behind_its_goodbye_is_cut_off() {
    let give_back = Control::Return(LoanWire::of_position(1));
    for what in [None, Some(Control::Fin), Some(Control::Want), Some(give_back)] {
        for reposting in [None, Some(Reposting::Lock)] {
            bounded(move || {
                let (device, config) = (device(), small(WINDOW));
                let pool = reposting.map(|how| pool(&device, 2, how));
                let (mut victim, mut raw, _) =
                    victim_receiver(&device, &config, Options::NONE, 1, pool.as_ref());
                raw.control(Control::Fin.encode());
                match what {
                    None => raw.send(b"after"),
                    Some(control) => raw.control(control.encode()),
                }
                assert_eq!(victim.recv().unwrap_err(), RecvError::Closed);
                raw.drain();
                assert_eq!(victim.try_recv().unwrap_err(), RecvError::Closed);
                assert!(raw.is_cut_off(), "{what:?}, {reposting:?}");
            });
        }
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

#[test]
fn other_peers_of_the_same_receiver_go_on() {
    bounded(|| {
        for reposting in
            [None, Some(Reposting::Lock), Some(Reposting::Thread), Some(Reposting::Combining)]
        {
            let (device, config) = (device(), small(WINDOW));
            let pool = reposting.map(|how| pool(&device, 2, how));
            let (mut victim, mut raw, _) =
                victim_receiver(&device, &config, Options::NONE, 2, pool.as_ref());
            let mut good = match &pool {
                Some(pool) => {
                    join_shared::<SendRecv>(&mut victim, pool, &device, &device, &config).unwrap()
                }
                None => {
                    rdma_conn::join::<SendRecv>(&mut victim, &device, &device, &config).unwrap()
                }
            };
            let mut errors = 0;
            std::thread::scope(|scope| {
                scope.spawn(move || {
                    for number in 0..200 {
                        if number == 50 {
                            raw.send(b"honest");
                            raw.control(0x8000_0009);
                            raw.drain();
                        }
                        good.send(&content(3, number, 20)).unwrap();
                    }
                    good.wait_all().unwrap();
                });
                let mut number = 0;
                while number < 200 || errors == 0 {
                    match victim.recv() {
                        Ok(message) if message.peer() == Peer(1) => {
                            assert_content(&message, 3, number, 20);
                            number += 1;
                        }
                        Ok(message) => assert_eq!(*message, *b"honest"),
                        Err(RecvError::Peer { peer: Peer(0), reason: ended }) => {
                            let violation = ProtocolError::Control(0x8000_0009);
                            assert_eq!(ended, CloseReason::Protocol(violation));
                            errors += 1;
                        }
                        Err(e) => panic!("{e}"),
                    }
                }
            });
            assert_eq!(errors, 1);
        }
    });
}

#[test]
fn a_liar_gives_its_share_of_a_pool_back() {
    bounded(|| {
        for reposting in Reposting::ALL {
            let (device, config) = (device(), small(WINDOW));
            let pool = pool(&device, 1, reposting);
            let (mut victim, mut raw, _) =
                victim_receiver(&device, &config, Options::NONE, 3, Some(&pool));
            raw.send(b"held beyond the end");
            let held = victim.recv().unwrap();
            raw.control(credit(1));
            let reason = ended(victim.recv().unwrap_err());
            assert_eq!(reason, CloseReason::Protocol(ProtocolError::Control(1)));
            assert_eq!(victim.try_recv().unwrap_err(), RecvError::Ended(reason));
            // The share is not free before the last message is.
            let refused = join_shared::<SendRecv>(&mut victim, &pool, &device, &device, &config);
            assert!(matches!(refused.unwrap_err(), ConnectError::TooManyPeers(1)));
            drop(held);
            // A reposting thread takes its time.
            let mut next = loop {
                match join_shared::<SendRecv>(&mut victim, &pool, &device, &device, &config) {
                    Ok(next) => break next,
                    Err(ConnectError::TooManyPeers(1)) => std::thread::yield_now(),
                    Err(e) => panic!("{e}"),
                }
            };
            next.send_acked(b"next").unwrap();
            assert_eq!(*victim.recv().unwrap(), *b"next");
        }
    });
}

/// It has sent before it was ready, and then went away: its messages lie in buffers of
/// the pool, and must not stay there.
#[test]
fn a_peer_that_never_gets_ready_keeps_no_buffer_of_a_pool() {
    bounded(|| {
        // Without a reposting thread, which would take its time.
        for reposting in [Reposting::Lock, Reposting::Combining] {
            let (device, config) = (device(), small(WINDOW));
            let pool = pool(&device, 1, reposting);
            let mut victim = receiver_shared::<SendRecv>(&device, &config, 1, &pool).unwrap();
            let listener = Listener::<SendRecv>::bind("127.0.0.1:0").unwrap();
            let address = listener.local_addr();
            for _ in 0..5 {
                std::thread::scope(|scope| {
                    let device = &device;
                    scope.spawn(move || {
                        let mut stream = TcpStream::connect(address).unwrap();
                        let mut raw = begin_sender(&mut stream, device, Shape::default());
                        (0..3).for_each(|_| raw.send(b"too early"));
                        assert!(raw.drain().iter().all(|status| *status == WcStatus::SUCCESS));
                    });
                    let incoming = listener.next().unwrap();
                    incoming.accept_into_shared(&mut victim, &pool, device, &config).unwrap_err();
                });
                // No peer has ever joined.
                assert_eq!(victim.try_recv().unwrap_err(), RecvError::Empty);
                use_whole(&pool, &mut victim, &device, &config);
                victim = receiver_shared::<SendRecv>(&device, &config, 1, &pool).unwrap();
            }
        }
    });
}

/// No thread receives meanwhile: a server accepts its senders first.
#[test]
fn peers_that_never_get_ready_take_no_share_of_a_pool() {
    bounded(|| {
        for reposting in [Reposting::Lock, Reposting::Combining] {
            let (device, config) = (device(), small(WINDOW));
            let pool = pool(&device, 2, reposting);
            let mut victim = receiver_shared::<SendRecv>(&device, &config, 2, &pool).unwrap();
            let mut steady =
                join_shared::<SendRecv>(&mut victim, &pool, &device, &device, &config).unwrap();
            let listener = Listener::<SendRecv>::bind("127.0.0.1:0").unwrap();
            let address = listener.local_addr();
            for round in 0..6 {
                std::thread::scope(|scope| {
                    let device = &device;
                    scope.spawn(move || {
                        let mut stream = TcpStream::connect(address).unwrap();
                        let mut raw = begin_sender(&mut stream, device, Shape::default());
                        (0..2 * (round % 2)).for_each(|_| raw.send(b"too early"));
                        assert!(raw.drain().iter().all(|status| *status == WcStatus::SUCCESS));
                    });
                    let incoming = listener.next().unwrap();
                    let refused = incoming.accept_into_shared(&mut victim, &pool, device, &config);
                    assert!(matches!(refused, Err(ConnectError::Handshake(_))), "{refused:?}");
                });
            }
            let mut late =
                join_shared::<SendRecv>(&mut victim, &pool, &device, &device, &config).unwrap();
            for (number, sender) in (0..).zip([&mut steady, &mut late]) {
                sender.send_acked(b"here").unwrap();
                assert_eq!(victim.recv().unwrap().peer(), Peer(number));
            }
        }
    });
}

/// Fills all buffers of a pool with the messages of one connection.
fn use_whole(pool: &SharedPool, victim: &mut Receiver, device: &Device, config: &Config) {
    let mut sender = join_shared::<SendRecv>(victim, pool, device, device, config).unwrap();
    drop(hold(&mut sender, victim, WINDOW.into(), 0));
}

/// A way in which a sender waits.
#[derive(Debug, Clone, Copy)]
enum SenderWait {
    /// For credits: the receiver has buffers, but grants none.
    ForCredits,
    /// For the acknowledgement of a message that finds no buffer.
    ForTicket,
    /// For all acknowledgements, in `close`.
    ToClose,
}

/// Returns the close reason of a sender that is told `lie` while it waits.
fn told_to_a_sender(
    waiting: SenderWait,
    wait: WaitStrategy,
    lie: impl FnOnce(&mut HandMadeEnd),
) -> CloseReason {
    let device = device();
    let buffers = if matches!(waiting, SenderWait::ForCredits) { WINDOW } else { 0 };
    // 491 ms between two tries: the lie is sent within the first of them.
    let shape = Shape { buffers, claimed_window: WINDOW, min_rnr_timer: 31, ..Shape::default() };
    let config = Config { common: Common { wait, ..small(WINDOW).common }, ..small(WINDOW) };
    let (mut victim, mut raw) = victim_sender(&device, &config, shape);
    let error = std::thread::scope(|scope| {
        let waiting = scope.spawn(move || match waiting {
            SenderWait::ForCredits => loop {
                if let Err(e) = victim.send(b"message") {
                    // It stays ended, whatever is asked of it.
                    assert_eq!(victim.try_send(b"more").unwrap_err(), e);
                    assert_eq!(victim.wait_for_room(1).unwrap_err(), e);
                    break e;
                }
            },
            SenderWait::ForTicket => {
                let ticket = victim.send(b"message").unwrap();
                let error = victim.wait_acked(ticket).unwrap_err();
                assert_eq!(victim.is_acked(ticket).unwrap_err(), error);
                assert_eq!(victim.wait_all().unwrap_err(), error);
                error
            }
            SenderWait::ToClose => {
                victim.send(b"message").unwrap();
                victim.close().unwrap_err()
            }
        });
        if buffers > 0 {
            (0..buffers).for_each(|_| drop(raw.receive()));
        }
        lie(&mut raw);
        waiting.join().unwrap()
    });
    match error {
        SendError::Ended(ended) => ended,
        other => panic!("{other:?}"),
    }
}

fn every_waiting_sender(lie: fn(&mut HandMadeEnd), expected: fn(&CloseReason) -> bool) {
    for waiting in [SenderWait::ForCredits, SenderWait::ForTicket, SenderWait::ToClose] {
        for wait in [WaitStrategy::Spin, WaitStrategy::Block] {
            let ended = bounded(move || told_to_a_sender(waiting, wait, lie));
            assert!(expected(&ended), "{waiting:?} {wait:?}: {ended:?}");
        }
    }
}

#[test]
fn an_impossible_credit_ends_every_waiting_sender() {
    every_waiting_sender(
        |raw| raw.control(credit(1000)),
        |ended| {
            matches!(
                ended,
                CloseReason::Protocol(ProtocolError::Credit(CreditError::Impossible {
                    ahead: 996,
                    ..
                }))
            )
        },
    );
}

#[test]
fn a_backwards_credit_ends_every_waiting_sender() {
    every_waiting_sender(
        |raw| raw.control(credit(3)),
        |ended| {
            matches!(
                ended,
                CloseReason::Protocol(ProtocolError::Credit(CreditError::Backwards { by: 1 }))
            )
        },
    );
}

#[test]
fn meaningless_control_ends_every_waiting_sender() {
    every_waiting_sender(
        |raw| raw.control(0x8000_0042),
        |ended| *ended == CloseReason::Protocol(ProtocolError::Control(0x8000_0042)),
    );
    every_waiting_sender(
        |raw| raw.control(Control::Fin.encode()),
        |ended| *ended == CloseReason::Protocol(ProtocolError::Control(Control::Fin.encode())),
    );
}

#[test]
fn a_message_to_a_sender_ends_every_waiting_sender() {
    every_waiting_sender(
        |raw| raw.send(b""),
        |ended| *ended == CloseReason::Protocol(ProtocolError::Overrun),
    );
    every_waiting_sender(
        |raw| raw.send(b"bytes"),
        |ended| matches!(ended, CloseReason::PeerLost(e) if e.cause.status == too_long()),
    );
}

#[test]
fn a_receiver_that_stops_ends_every_waiting_sender() {
    every_waiting_sender(
        |raw| raw.control(Control::Stop(Taken::of_count(0)).encode()),
        CloseReason::is_close,
    );
}

#[test]
fn a_flood_of_credits_is_no_more_than_one() {
    bounded(|| {
        let device = device();
        let (mut victim, mut raw) = victim_sender(&device, &small(WINDOW), Shape::default());
        for _ in 0..16 {
            raw.control(credit(16));
        }
        for number in 0..16 {
            victim.send_acked(&content(0, number, 8)).unwrap();
        }
        let refused = victim.send_timeout(b"", Duration::from_millis(1));
        assert_eq!(refused.unwrap_err(), SendError::TimedOut { unflushed: 0 });
    });
}

/// It has found its peer out, and is not dropped: its device must not answer for it.
#[test]
fn a_sender_that_has_failed_takes_no_part_any_more() {
    bounded(|| {
        let device = device();
        let (mut victim, mut raw) = victim_sender(&device, &small(WINDOW), Shape::default());
        raw.control(0x8000_0042);
        let error = loop {
            if let Err(e) = victim.send_acked(b"message") {
                break e;
            }
        };
        assert_eq!(
            error,
            SendError::Ended(CloseReason::Protocol(ProtocolError::Control(0x8000_0042)))
        );
        assert!(raw.is_cut_off());
    });
}
