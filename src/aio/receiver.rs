//! Receiving.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use futures_core::Stream;

use super::blocking::{BlockingTask, can_begin};
use super::waiter::Waiter;
use crate::error::RecvError;
use crate::half::RecvHalf;

/// A receiving half on a tokio runtime. As a [`Stream`] it ends when all senders have closed, and
/// after an error of its own ([`RecvError::Ended`]).
///
/// Dropping it says goodbye on a thread of the runtime for blocking work.
#[derive(Debug)]
pub struct Receiver<R: RecvHalf + 'static> {
    /// Here until it is dropped.
    half: Option<R>,
    waiter: Waiter,
    is_over: bool,
}

impl<R: RecvHalf + 'static> Receiver<R> {
    /// A half that was connected otherwise.
    #[must_use]
    pub fn new(half: R) -> Receiver<R> {
        Receiver { half: Some(half), waiter: Waiter::default(), is_over: false }
    }

    /// The half, for calls of its own. What they find is not lost for the futures.
    ///
    /// # Panics
    /// Never: it is here until it is dropped.
    pub fn half(&mut self) -> &mut R {
        self.half.as_mut().expect("it was not dropped")
    }

    /// The half, as it was connected.
    ///
    /// # Panics
    /// Never.
    #[must_use]
    pub fn into_half(mut self) -> R {
        self.half.take().expect("it was not dropped")
    }

    /// Ends the half at once, as [`RecvHalf::abort`].
    pub fn abort(mut self) {
        if let Some(half) = self.half.take() {
            half.abort();
        }
    }

    /// Receives the next message, as [`RecvHalf::recv`].
    ///
    /// Cancel-safe: a message is received in the call that returns it, and not before.
    ///
    /// # Errors
    /// As [`RecvHalf::recv`].
    pub async fn recv(&mut self) -> Result<R::Message, RecvError> {
        std::future::poll_fn(|cx| self.poll_recv(cx)).await
    }

    /// The next message, if there is one; else the task is woken when it is worth to look again.
    ///
    /// # Errors
    /// As [`recv`](Receiver::recv).
    pub fn poll_recv(&mut self, cx: &mut Context<'_>) -> Poll<Result<R::Message, RecvError>> {
        let Receiver { half: Some(half), waiter, .. } = self else {
            return Poll::Ready(Err(RecvError::Closed));
        };
        ready!(waiter.poll_turn(cx));
        loop {
            match half.try_recv() {
                Err(RecvError::Empty) => {}
                Ok(message) => {
                    waiter.found();
                    return Poll::Ready(Ok(message));
                }
                Err(e) => return Poll::Ready(Err(e)),
            }
            ready!(waiter.poll(cx, || half.arm()))?;
        }
    }
}

/// Nothing in it is pinned.
impl<R: RecvHalf + 'static> Unpin for Receiver<R> {}

impl<R: RecvHalf + 'static> Stream for Receiver<R> {
    type Item = Result<R::Message, RecvError>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if self.is_over {
            return Poll::Ready(None);
        }
        let next = ready!(self.poll_recv(cx));
        self.is_over = matches!(next, Err(RecvError::Closed | RecvError::Ended(_)));
        Poll::Ready(match next {
            Err(RecvError::Closed) => None,
            next => Some(next),
        })
    }
}

impl<R: RecvHalf + 'static> Drop for Receiver<R> {
    fn drop(&mut self) {
        drop_aside(self.half.take());
    }
}

/// Drops a half where it may wait for its peer: not on a thread that runs tasks.
pub(super) fn drop_aside<T: Send + 'static>(half: Option<T>) {
    // Without a runtime it is dropped here.
    if let Some(half) = half
        && can_begin()
    {
        drop(BlockingTask::new(move || drop(half)));
    }
}
