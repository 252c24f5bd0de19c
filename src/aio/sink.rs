//! A sender as a sink.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use futures_sink::Sink;

use super::sender::Sender;
use crate::error::SendError;
use crate::half::SendHalf;

/// A sender as a [`Sink`] of messages: one at most waits here for room. Flushing waits until all
/// are sent, closing until they are acknowledged and the goodbye is said.
#[derive(Debug)]
pub struct SendSink<S: SendHalf + 'static, M> {
    sender: Sender<S>,
    next: Option<M>,
}

impl<S: SendHalf + 'static> Sender<S> {
    /// As a sink of messages.
    #[must_use]
    pub fn into_sink<M: AsRef<[u8]>>(self) -> SendSink<S, M> {
        SendSink { sender: self, next: None }
    }
}

impl<S: SendHalf + 'static, M: AsRef<[u8]>> SendSink<S, M> {
    /// The sender, and the message that waits for room.
    #[must_use]
    pub fn into_sender(self) -> (Sender<S>, Option<M>) {
        (self.sender, self.next)
    }

    fn poll_next_sent(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), SendError>> {
        if let Some(message) = &self.next {
            let sent = ready!(self.sender.poll_send(cx, message.as_ref()));
            self.next = None;
            sent?;
        }
        Poll::Ready(Ok(()))
    }
}

/// Nothing in it is pinned.
impl<S: SendHalf + 'static, M> Unpin for SendSink<S, M> {}

impl<S: SendHalf + 'static, M: AsRef<[u8]>> Sink<M> for SendSink<S, M> {
    type Error = SendError;

    fn poll_ready(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<(), SendError>> {
        self.poll_next_sent(cx)
    }

    fn start_send(mut self: Pin<&mut Self>, message: M) -> Result<(), SendError> {
        self.next = Some(message);
        Ok(())
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<(), SendError>> {
        ready!(self.poll_next_sent(cx))?;
        self.sender.poll_flush(cx)
    }

    fn poll_close(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<(), SendError>> {
        ready!(self.poll_next_sent(cx))?;
        self.sender.poll_close(cx)
    }
}
