use super::*;
use crate::send_recv::{
    Config, RecvError, Reposting, SendError, SharedConfig, SharedPool, join, join_shared, pair,
    receiver,
};

const WINDOW: u32 = 4;

fn small() -> Config {
    Config { unacked: WINDOW, batch: 1, recv_window: WINDOW, ..Config::default() }
}

impl Link {
    /// Nothing more can be posted, however much room was counted.
    fn clog(&mut self) {
        while self.queue.stage(PROBE, false).is_ok() {}
    }
}

/// Until a completion makes room, nothing can be posted: not even the goodbye.
#[test]
fn a_goodbye_that_finds_no_room_is_said_later() {
    let (device, config) = (crate::device::soft().unwrap(), Config::default());
    let (left, mut right) = pair(&device, &device, &config).unwrap();
    let link = right.receiver.links.get_mut(0).unwrap();
    while link.post_control(PROBE, false) == Posted::Yes {}
    link.stop(Control::Stop);
    assert!(link.is_saying_goodbye());
    drop(right.receiver);
    let mut sender = left.sender;
    let stopped = loop {
        if let Err(e) = sender.send(b"anybody there?") {
            break e;
        }
    };
    assert_eq!(stopped, SendError::Ended(Ended::PeerStopped));
}

/// The receiver is never idle until it has told.
#[test]
fn a_credit_that_is_refused_is_reported_while_others_send() {
    let (device, few) = (crate::device::soft().unwrap(), small());
    let many = Config { unacked: 64, recv_window: 64, ..few };
    let mut inbox = receiver(&device, &many, 2, None).unwrap();
    let mut busy = join(&mut inbox, &device, &device, &many).unwrap();
    let mut other = join(&mut inbox, &device, &device, &few).unwrap();
    (0..WINDOW).for_each(|_| other.send(b"a credit is due").unwrap());
    (0..32).for_each(|_| busy.send(b"so there is always something").unwrap());
    inbox.links.get_mut(1).unwrap().clog();
    let error = (0..1000).find_map(|_| {
        // Where there is no room, there is much to receive.
        let _ = busy.try_send(b"and more");
        inbox.try_recv().err()
    });
    let Some(RecvError::Peer { peer: Peer(1), ended: Ended::Device(_) }) = error else {
        panic!("{error:?}");
    };
}

/// What has come before a failure that no completion reports is handed out first.
#[test]
fn a_share_is_kept_until_the_last_messages_are_booked() {
    let (device, config) = (crate::device::soft().unwrap(), small());
    let sizes = SharedConfig {
        buffers: WINDOW + 1,
        buffer_bytes: config.message_bytes,
        max_peers: 1,
        reposting: Reposting::Lock,
        repost_batch: 1,
    };
    let pool = SharedPool::new(&device, sizes).unwrap();
    let mut inbox = receiver(&device, &config, 1, Some(&pool)).unwrap();
    let mut sender = join_shared(&mut inbox, &pool, &device, &device, &config).unwrap();
    for freed in [&b"first"[..], b"second"] {
        sender.send(freed).unwrap();
        assert_eq!(&*inbox.recv().unwrap(), freed);
    }
    sender.send(b"third").unwrap();
    let link = inbox.links.get_mut(0).unwrap();
    link.clog();
    link.settle(true);
    assert!(!link.is_open(), "a credit was due, and could not be sent");
    assert_eq!(*inbox.recv().unwrap(), *b"third");
    let error = inbox.recv().unwrap_err();
    assert!(matches!(error, RecvError::Peer { ended: Ended::Device(_), .. }), "{error:?}");
    assert_eq!(inbox.recv().unwrap_err(), RecvError::Closed);
    join_shared(&mut inbox, &pool, &device, &device, &config).unwrap();
}
