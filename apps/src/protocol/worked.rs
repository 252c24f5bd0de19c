//! Halves of the library that count their work, as the commands use them.

use std::time::Duration;

use anyhow::Result;
use rdma_conn::error::RecvError;
use rdma_conn::{FromPeer, Peer, RecvHalf};

use super::{MeasuredReceiver, TakeOutcome};
use crate::measure::Work;

/// A half that counts its work.
pub(crate) trait Worked {
    fn work(&self) -> Work;
}

impl<R: RecvHalf + Worked> MeasuredReceiver for R {
    #[inline]
    fn take(
        &mut self,
        time: Option<Duration>,
        mut each: impl FnMut(u32, &[u8]) -> Result<()>,
    ) -> Result<TakeOutcome> {
        let mut shown = Ok(());
        let mut show = |peer: Peer, message: &[u8]| {
            if shown.is_ok() {
                shown = each(peer.0, message);
            }
        };
        let count = match (self.try_recv_each(&mut show), time) {
            (Err(RecvError::Empty), Some(time)) => self.recv_timeout(time).map(|message| {
                show(message.peer(), &message);
                1
            }),
            (other, _) => other,
        };
        shown?;
        match count {
            Ok(count) => Ok(TakeOutcome::Some(count as u64)),
            Err(RecvError::Empty | RecvError::TimedOut) => Ok(TakeOutcome::Nothing),
            Err(RecvError::Closed) => Ok(TakeOutcome::Closed),
            Err(e) => Err(e.into()),
        }
    }

    fn work(&self) -> Work {
        Worked::work(self)
    }

    fn registered_bytes(&self) -> u64 {
        RecvHalf::registered_bytes(self)
    }
}
