//! Receivers that copy messages out: their calls are those of their [`CopyReceiving`].

use std::fmt::Debug;
use std::time::Duration;

use super::{CopyReceiving, ReceiverLink};
use crate::arm::Arm;
use crate::copies::{IntoMessage, Message};
use crate::error::RecvError;
use crate::half::{RecvHalf, driven};
use crate::peer::Peer;
use crate::wait::Deadline;
use crate::wire::ConnectedQp;

/// A receiver that is a [`CopyReceiving`], with copies as messages.
pub(crate) trait ReceivesCopies: Debug + Send + Sized {
    type Link: ReceiverLink;

    fn receiving(&self) -> &CopyReceiving<Self::Link>;
    fn receiving_mut(&mut self) -> &mut CopyReceiving<Self::Link>;
}

impl<R: ReceivesCopies> RecvHalf for R {
    type Message = Message;

    fn peers(&self) -> usize {
        self.receiving().places.open() as usize
    }

    fn registered_bytes(&self) -> u64 {
        let CopyReceiving { places, shared, .. } = self.receiving();
        let own: u64 = places.iter().map(|place| place.link.registered_bytes()).sum();
        own + R::Link::shared_bytes(shared)
    }

    #[inline]
    fn try_recv(&mut self) -> Result<Message, RecvError> {
        self.receiving_mut().try_recv().map(IntoMessage::into_message)
    }

    #[inline]
    fn try_recv_each(&mut self, each: impl FnMut(Peer, &[u8])) -> Result<usize, RecvError> {
        self.receiving_mut().try_recv_each(each)
    }

    fn arm(&mut self) -> Result<Arm<'_>, RecvError> {
        self.receiving_mut().arm()
    }
}

impl<R: ReceivesCopies> driven::Receiver for R {
    type Taken = Message;

    fn recv_until(&mut self, deadline: Deadline) -> Result<Message, RecvError> {
        self.receiving_mut().recv_until(deadline).map(IntoMessage::into_message)
    }

    fn qp_of(&self, peer: Peer) -> Option<&ConnectedQp> {
        self.receiving().places.qp_of(peer)
    }

    fn abandon(&mut self) {
        self.receiving_mut().waiting.common.linger = Duration::ZERO;
    }
}
