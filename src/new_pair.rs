//! A queue pair in the making, of either half of a connection.

use conn_core::handshake::Endpoint;
use verbs_safe::{ProtectionDomain, QueuePair, QueuePairConfig, RecvQueue, Recycle};

use crate::device::{Device, DeviceError};
use crate::doorbell;
use crate::error::ConnectError;
use crate::posting::{AtEnd, Posting};
use crate::wire::{Tracker, Wire};

/// A queue pair in INIT, and the number that its packets begin with.
#[derive(Debug)]
pub(crate) struct NewPair<R: Recycle = ()> {
    pub(crate) queues: QueuePair<R>,
    pub(crate) psn: u32,
}

impl<R: Recycle> NewPair<R> {
    /// Makes one; `recycler` is told of the slots that return to its receive queue.
    pub(crate) fn create(
        device: &Device,
        pd: &ProtectionDomain,
        shape: &QueuePairConfig<'_>,
        recycler: R,
    ) -> Result<NewPair<R>, DeviceError> {
        let queues = pd.create_qp(shape, recycler);
        let queues = queues.map_err(|e| device.error("create a queue pair", &e))?;
        Ok(NewPair { queues, psn: verbs_safe::random_psn() })
    }

    /// Posts the first `slots` of its own receive queue, if it has one.
    pub(crate) fn post_receives(&mut self, device: &Device, slots: u32) -> Result<(), DeviceError> {
        let Some(queue) = &mut self.queues.recv else { return Ok(()) };
        let all: Vec<u32> = (0..slots).collect();
        doorbell::post_receives(queue, &all).map_err(|e| device.error("post receives", &e))
    }

    /// Returns what the peer has to know of it.
    pub(crate) fn endpoint(&self, recv_depth: u32, max_message: u32) -> Endpoint {
        let (qp_num, psn) = (self.queues.control.qp_num(), self.psn);
        Endpoint { qp_num, psn, recv_depth, max_message }
    }

    /// Connects it to the peer's `end`; `tracker` is the one of its send queue.
    pub(crate) fn connect(
        self,
        end: &Endpoint,
        wire: &Wire<'_>,
        tracker: Tracker,
        at_end: AtEnd,
    ) -> Result<(Posting, Option<RecvQueue<R>>), ConnectError> {
        let QueuePair { control, send, recv } = self.queues;
        let control = wire.connect(control, self.psn, end)?;
        Ok((Posting::new(control, send, tracker, at_end), recv))
    }
}
