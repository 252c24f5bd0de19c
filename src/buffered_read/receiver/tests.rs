use super::*;
use crate::buffered_read::{Config, Message, Sender};
use crate::common::Common;
use crate::device::soft;
use crate::half::SendHalf;
use crate::{BufferedRead, pair};

/// A receiver that may hold one message, and holds it, and its sender.
fn holding() -> (Sender, Receiver, Message) {
    let device = soft().unwrap();
    let keepalive = Duration::from_secs(86_400);
    let wait = WaitStrategy::Block;
    let config = Config {
        max_held: 1,
        common: Common { keepalive, wait, ..Common::default() },
        ..Config::default()
    };
    let (mut a, mut b) = pair::<BufferedRead>(&device, &device, &config).unwrap();
    a.sender.try_send(b"held").unwrap();
    let held = b.receiver.recv().unwrap();
    (a.sender, b.receiver, held)
}

/// Reports whether the receiver sleeps, after it has found nothing a few times.
fn falls_asleep(receiver: &mut Receiver) -> bool {
    let mut sleeps = || {
        assert_eq!(receiver.try_recv().err(), Some(RecvError::Empty));
        receiver.prepare_sleep()
    };
    (0..20).fold(false, |_, _| sleeps())
}

#[test]
fn a_receiver_that_holds_all_it_may_sleeps_while_more_comes() {
    let (mut sender, mut receiver, held) = holding();
    for _ in 0..3 {
        sender.try_send(b"more").unwrap();
        assert!(falls_asleep(&mut receiver));
    }
    drop(held);
    assert!(!receiver.prepare_sleep(), "there is a message to take");
    (0..3).for_each(|_| assert_eq!(&*receiver.recv().unwrap(), b"more"));
}

#[test]
fn a_receiver_at_its_limit_sleeps_after_a_failed_connection() {
    let (mut sender, mut receiver, held) = holding();
    sender.try_send(b"more").unwrap();
    assert!(falls_asleep(&mut receiver));
    let lost = CloseReason::Device("out of order".into());
    receiver.links[0].as_mut().unwrap().fail(lost.clone());
    assert!(falls_asleep(&mut receiver));
    drop(held);
    assert_eq!(&*receiver.recv().unwrap(), b"more");
    assert!(matches!(receiver.recv(), Err(RecvError::Peer { reason: ended, .. }) if ended == lost));
}
