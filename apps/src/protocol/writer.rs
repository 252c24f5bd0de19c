//! A sender whose messages are copied, as the commands use it.

use anyhow::Result;
use rdma_conn::SendHalf;

use super::{Sending, by_half};
use crate::measure::Work;

/// A sender that counts what it does.
pub(crate) trait Worked: SendHalf {
    fn work(&self) -> Work;
}

/// A sender, and where a message is made that is copied afterwards: a peer may read the memory
/// that it is sent from at any time, so that no slice of it is lent.
pub(crate) struct Writer<S> {
    sender: S,
    scratch: Vec<u8>,
}

impl<S> From<S> for Writer<S> {
    fn from(sender: S) -> Writer<S> {
        Writer { sender, scratch: Vec::new() }
    }
}

impl<S: Worked> Sending for Writer<S> {
    by_half!(sender);

    #[inline]
    fn send_with(&mut self, bytes: usize, mut fill: impl FnMut(&mut [u8])) -> Result<()> {
        if self.scratch.len() < bytes {
            self.scratch.resize(bytes, 0);
        }
        fill(&mut self.scratch[..bytes]);
        self.sender.send(&self.scratch[..bytes])?;
        Ok(())
    }

    fn work(&self) -> Work {
        self.sender.work()
    }
}
