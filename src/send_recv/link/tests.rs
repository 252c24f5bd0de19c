use super::*;
use crate::error::{ConnectError, RecvError, SendError};
use crate::half::RecvHalf;
use crate::half::SendHalf;
use crate::send_recv::shared::LinkAddress;
use crate::send_recv::{Config, Reposting, SharedConfig, SharedPool};
use crate::{SendRecv, join, join_shared, pair, receiver, receiver_shared};

const WINDOW: u32 = 4;

fn small() -> Config {
    Config { unacked: WINDOW, batch: 1, recv_depth: WINDOW, ..Config::default() }
}

impl SendRecvLink {
    /// Nothing more can be posted, however much room was counted.
    fn clog(&mut self) {
        while self.posting.queue_mut().stage(PROBE, false).is_ok() {}
    }
}

/// A goodbye that finds a full send queue is posted once a completion has made room.
#[test]
fn a_goodbye_that_finds_no_room_is_said_later() {
    let (device, config) = (crate::device::soft().unwrap(), Config::default());
    let (left, mut right) = pair::<SendRecv>(&device, &device, &config).unwrap();
    let link = right.receiver.links.get_mut(0).unwrap();
    while link.post_control(PROBE, false) == ControlPosted::Yes {}
    link.stop();
    assert!(link.is_saying_goodbye());
    drop(right.receiver);
    let mut sender = left.sender;
    let stopped = loop {
        if let Err(e) = sender.send_acked(b"until the goodbye") {
            break e;
        }
    };
    // The sender finds the goodbye before its message (0 unacknowledged) or after it (1).
    let SendError::Ended(CloseReason::PeerClosed { unacked: 0 | 1 }) = stopped else {
        panic!("{stopped:?}");
    };
}

/// The receiver is never idle before it reports the error.
#[test]
fn a_credit_that_is_refused_is_reported_while_others_send() {
    let (device, few) = (crate::device::soft().unwrap(), small());
    let many = Config { unacked: 64, recv_depth: 64, ..few };
    let mut inbox = receiver::<SendRecv>(&device, &many, 2).unwrap();
    let mut busy = join::<SendRecv>(&mut inbox, &device, &device, &many).unwrap();
    let mut other = join::<SendRecv>(&mut inbox, &device, &device, &few).unwrap();
    (0..WINDOW).for_each(|_| other.send_acked(b"a credit is due").unwrap());
    (0..32).for_each(|_| busy.send_acked(b"so there is always something").unwrap());
    inbox.links.get_mut(1).unwrap().clog();
    let error = (0..1000).find_map(|_| {
        // Where there is no room, there is much to receive.
        let _ = busy.try_send(b"and more");
        inbox.try_recv().err()
    });
    let Some(RecvError::Peer { peer: Peer(1), reason: CloseReason::Device(_) }) = error else {
        panic!("{error:?}");
    };
}

/// Messages that came before a failure which no completion reports are handed out first.
#[test]
fn what_has_come_before_a_failure_is_handed_out_first() {
    let (device, config) = (crate::device::soft().unwrap(), small());
    let sizes = SharedConfig {
        buffers: WINDOW + 1,
        buffer_bytes: config.message_bytes,
        max_peers: 1,
        reposting: Reposting::Lock,
        repost_batch: 1,
    };
    let pool = SharedPool::new(&device, sizes).unwrap();
    let mut inbox = receiver_shared::<SendRecv>(&device, &config, 1, &pool).unwrap();
    let mut sender = join_shared::<SendRecv>(&mut inbox, &pool, &device, &device, &config).unwrap();
    for freed in [&b"first"[..], b"second"] {
        sender.send_acked(freed).unwrap();
        assert_eq!(&*inbox.recv().unwrap(), freed);
        // An idle receiver grants its share again.
        (0..100).for_each(|_| assert_eq!(inbox.try_recv().unwrap_err(), RecvError::Empty));
    }
    sender.send_acked(b"third").unwrap();
    let link = inbox.links.get_mut(0).unwrap();
    pool.break_down();
    link.settle(true);
    assert!(!link.is_open(), "it has no buffers any more");
    assert_eq!(*inbox.recv().unwrap(), *b"third");
    let error = inbox.recv().unwrap_err();
    let RecvError::Peer { reason: reason @ CloseReason::Device(_), .. } = error else {
        panic!("{error:?}");
    };
    assert_eq!(inbox.recv().unwrap_err(), RecvError::Ended(reason));
}

/// Until its device reports what an ended queue pair keeps, a buffer of its share may be missing.
#[test]
fn the_share_of_a_failed_link_is_lent_after_its_device_is_done() {
    let (device, config) = (crate::device::soft().unwrap(), small());
    let pool = SharedPool::new(&device, SharedConfig::new(&config, 1)).unwrap();
    let mut inbox = receiver_shared::<SendRecv>(&device, &config, 1, &pool).unwrap();
    let _sender = join_shared::<SendRecv>(&mut inbox, &pool, &device, &device, &config).unwrap();
    let link = inbox.links.get_mut(0).unwrap();
    link.fail(CloseReason::Device("out of order".into()));
    assert!(link.take_error().is_some());
    link.settle(true);
    let address = LinkAddress { returns: inbox.returns.clone(), place: 0 };
    let refused = pool.join(&address, None).unwrap_err();
    assert!(matches!(refused, ConnectError::TooManyPeers(1)), "{refused:?}");
    // One that joins waits for the device.
    assert_eq!(inbox.recv().unwrap_err(), RecvError::Closed);
    inbox.join_pool(&pool, &address, None).unwrap();
    assert_eq!(inbox.stats().unaccounted_buffers, 0);
}
