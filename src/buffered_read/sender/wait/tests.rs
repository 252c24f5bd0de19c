use std::time::Duration;

use conn_core::buffered_read::wake::Waker;

use crate::buffered_read::Config;
use crate::common::Common;
use crate::error::{CloseReason, RecvError, SendError};
use crate::half::{RecvHalf, SendHalf};
use crate::wait::WaitStrategy;
use crate::{BufferedRead, pair};

#[test]
fn a_goodbye_whose_wake_up_fails_ends() {
    const NEVER: Duration = Duration::from_secs(86_400);
    let device = crate::device::soft().unwrap();
    let config = Config {
        common: Common { wait: WaitStrategy::Block, keepalive: NEVER, ..Common::default() },
        ..Config::default()
    };
    let (a, mut b) = pair::<BufferedRead>(&device, &device, &config).unwrap();
    let mut sender = a.sender;
    // It sleeps, and so asks for a wake-up.
    while sender.block.wake_word() == 0 {
        let slept = b.receiver.recv_timeout(Duration::from_millis(1));
        assert_eq!(slept.err(), Some(RecvError::TimedOut));
    }
    sender.half.posting.qp().to_error().unwrap();
    sender.try_send(b"the wake-up for this fails").unwrap();
    // The next one finds that out.
    sender.waker = Waker::default();
    let ended = sender.close_timeout(Duration::from_secs(10));
    assert!(matches!(ended, Err(SendError::Ended(CloseReason::PeerLost(_)))), "{ended:?}");
}
