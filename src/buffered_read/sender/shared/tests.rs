use super::*;
use crate::buffered_read::Config;
use crate::error::{CloseReason, RecvError};
use crate::half::RecvHalf;
use crate::wait::WaitStrategy;
use crate::{BufferedRead, Connection, pair};

#[test]
fn what_one_call_finds_lost_no_later_call_sends_to() {
    let device = crate::device::soft().unwrap();
    let config = Config {
        common: Common { wait: WaitStrategy::Block, ..Common::default() },
        ..Config::default()
    };
    let (a, mut b) = pair::<BufferedRead>(&device, &device, &config).unwrap();
    let sender = a.sender.into_shared(4).unwrap();
    // It sleeps, and so asks for a wake-up.
    while sender.block.wake_word() == 0 {
        let slept = b.receiver.recv_timeout(Duration::from_millis(1));
        assert_eq!(slept.err(), Some(RecvError::TimedOut));
    }
    sender.lock().half.posting.qp().to_error().unwrap();
    let ticket = sender.try_send(b"the wake-up for this fails").unwrap();
    let waited = sender.wait_acked(ticket);
    assert!(matches!(waited, Err(SendError::Ended(CloseReason::PeerLost(_)))), "{waited:?}");
    assert_eq!(sender.try_send(b"the next one").err(), waited.err());
}

#[test]
fn a_message_behind_one_that_is_still_copied_is_waited_for() {
    let device = crate::device::soft().unwrap();
    let config = Config::default();
    let connection = || {
        let (a, b) = pair::<BufferedRead>(&device, &device, &config).unwrap();
        let Connection { sender, .. } = a;
        (sender.into_shared(4).unwrap(), b.receiver)
    };
    let ((sender, mut receiver), (other, _)) = (connection(), connection());
    let slow = sender.senders.reserve(8).unwrap();
    let ticket = sender.try_send(b"in time").unwrap();
    assert_eq!(sender.is_acked(ticket), Ok(false));
    assert_eq!(other.is_acked(ticket), Err(SendError::UnknownTicket));
    let (header, _) = sender.senders.headers(&slow);
    sender.ring.store_u64(header.offset as usize, header.word.to_le()).unwrap();
    sender.senders.publish(slow, |tail| sender.block.publish_tail(tail));
    assert_eq!(receiver.recv().unwrap().len(), 8);
    assert_eq!(&*receiver.recv().unwrap(), b"in time");
}
