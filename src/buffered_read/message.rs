//! A received message.

use verbs_safe::RingBytes;

use crate::half::received_message;
use crate::peer::Peer;

/// A received message: derefs to its bytes, which stay in the receiver's ring.
///
/// Dropping it frees them, from any thread and in any order; the sender gets their room back when
/// all earlier messages are free, too. [`Receiver::free`](crate::RecvHalf::free) costs less. A
/// message may outlive its receiver.
#[derive(Debug)]
pub struct Message {
    pub(super) bytes: RingBytes,
    pub(super) peer: Peer,
    /// The place of its link in the receiver.
    pub(super) place: u32,
}

received_message!(Message, |message| &message.bytes);
