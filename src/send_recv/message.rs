//! A received message, and the peer that sent it.

use conn_core::pack::Unpacker;
use verbs_safe::RecvBuf;

use super::link::SendRecvLink;
use super::shared::SlotReturn;
use crate::half::received_message;
use crate::peer::Peer;

/// A received message: derefs to its bytes, in the buffer that the device has written.
///
/// Dropping it frees its buffer, from any thread and in any order; the receiver reposts freed
/// buffers in batches. [`Receiver::free`](crate::RecvHalf::free) does the same without atomic
/// operations. A message may outlive its receiver.
#[derive(Debug)]
pub struct Message {
    pub(super) buffer: RecvBuf<SlotReturn>,
    pub(super) peer: Peer,
    /// The place of its link in the receiver.
    pub(super) place: u32,
}

received_message!(Message, |message| &message.buffer);

/// A packed message that is being handed out.
#[derive(Debug)]
pub(super) struct OpenPack {
    pub(super) buffer: RecvBuf<SlotReturn>,
    pub(super) records: Unpacker,
    pub(super) peer: Peer,
    pub(super) place: u32,
}

impl OpenPack {
    #[cold]
    pub(super) fn new(buffer: RecvBuf<SlotReturn>, link: &SendRecvLink) -> OpenPack {
        let records = Unpacker::new(buffer.len() as u32);
        OpenPack { buffer, records, peer: link.peer(), place: link.place() }
    }

    /// Reports whether all its messages were handed out.
    pub(super) fn is_empty(&mut self) -> bool {
        matches!(self.records.next(&self.buffer), Ok(None))
    }
}
