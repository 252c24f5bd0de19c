//! Sending.

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use super::blocking::BlockingTask;
use super::receiver::drop_aside;
use super::waiter::Waiter;
use crate::error::{CloseReason, SendError};
use crate::half::SendHalf;
use crate::ticket::Ticket;

/// A sending half on a tokio runtime.
///
/// Dropping it says goodbye on a thread of the runtime for blocking work; [`close`](Sender::close)
/// waits for that, and returns the result.
#[derive(Debug)]
pub struct Sender<S: SendHalf + 'static> {
    /// Here until it is closed or dropped.
    half: Option<S>,
    waiter: Waiter,
    /// The goodbye, on a thread for blocking work.
    closing: Option<BlockingTask<Result<(), SendError>>>,
}

/// Nothing in it is pinned.
impl<S: SendHalf + 'static> Unpin for Sender<S> {}

impl<S: SendHalf + 'static> Sender<S> {
    /// A half that was connected otherwise.
    #[must_use]
    pub fn new(half: S) -> Sender<S> {
        Sender { half: Some(half), waiter: Waiter::default(), closing: None }
    }

    /// The half, for calls of its own; `None` once it is being [closed](Sender::poll_close).
    pub fn half(&mut self) -> Option<&mut S> {
        self.half.as_mut()
    }

    /// The half, as it was connected; `None` once it is being [closed](Sender::poll_close).
    #[must_use]
    pub fn into_half(mut self) -> Option<S> {
        self.half.take()
    }

    /// Accepts a message when there is room for it, as [`SendHalf::send`].
    ///
    /// Cancel-safe: a message is accepted in the call that returns its ticket, and not before.
    ///
    /// # Errors
    /// As [`SendHalf::send`].
    pub async fn send(&mut self, message: &[u8]) -> Result<Ticket, SendError> {
        std::future::poll_fn(|cx| self.poll_send(cx, message)).await
    }

    /// Accepts a message, if there is room; else the task is woken when it is worth to try again.
    ///
    /// # Errors
    /// As [`send`](Sender::send).
    pub fn poll_send(
        &mut self,
        cx: &mut Context<'_>,
        message: &[u8],
    ) -> Poll<Result<Ticket, SendError>> {
        self.poll_with(cx, |half| match half.try_send(message) {
            Ok(ticket) => Ok(Some(ticket)),
            Err(SendError::Full(_)) => Ok(None),
            Err(e) => Err(e),
        })
    }

    /// Waits until the message of `ticket`, and so every earlier one, is acknowledged, as
    /// [`SendHalf::wait_acked`]. Cancel-safe.
    ///
    /// # Errors
    /// As [`SendHalf::wait_acked`].
    pub async fn wait_acked(&mut self, ticket: Ticket) -> Result<(), SendError> {
        std::future::poll_fn(|cx| self.poll_acked(cx, ticket)).await
    }

    /// Completes once the message of `ticket` is acknowledged; until then, the task is woken when
    /// it is worth looking again.
    ///
    /// # Errors
    /// As [`wait_acked`](Sender::wait_acked).
    pub fn poll_acked(
        &mut self,
        cx: &mut Context<'_>,
        ticket: Ticket,
    ) -> Poll<Result<(), SendError>> {
        self.poll_with(cx, |half| Ok(half.is_acked(ticket)?.then_some(())))
    }

    /// Waits until everything accepted is acknowledged. Cancel-safe.
    ///
    /// # Errors
    /// As [`SendHalf::wait_all`].
    pub async fn wait_all(&mut self) -> Result<(), SendError> {
        std::future::poll_fn(|cx| self.poll_all(cx)).await
    }

    fn poll_all(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), SendError>> {
        self.poll_with(cx, |half| in_time(half.wait_all_timeout(Duration::ZERO)))
    }

    /// Sends gathered messages, as [`SendHalf::flush`]. Cancel-safe.
    ///
    /// # Errors
    /// As [`SendHalf::flush`].
    pub async fn flush(&mut self) -> Result<(), SendError> {
        std::future::poll_fn(|cx| self.poll_flush(cx)).await
    }

    /// Sends gathered messages, if there is room; else the task is woken for the next try.
    ///
    /// # Errors
    /// As [`flush`](Sender::flush).
    pub fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), SendError>> {
        self.poll_with(cx, |half| in_time(half.flush_timeout(Duration::ZERO)))
    }

    /// Delivers accepted messages, says goodbye and ends the half, as [`SendHalf::close`]. The
    /// goodbye runs on a thread of the runtime for blocking work. Dropping the future drops the
    /// half.
    ///
    /// # Errors
    /// As [`SendHalf::close`].
    pub async fn close(mut self) -> Result<(), SendError> {
        std::future::poll_fn(|cx| self.poll_close(cx)).await
    }

    /// As [`close`](Sender::close), step by step. The half is gone when all is acknowledged; calls
    /// that send answer that it has closed.
    ///
    /// # Errors
    /// As [`close`](Sender::close).
    pub fn poll_close(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), SendError>> {
        if self.half.is_some() {
            // The close returns the same error, unless it succeeds.
            let _ = ready!(self.poll_all(cx));
        }
        if let Some(half) = self.half.take() {
            self.closing = Some(BlockingTask::new(move || half.close()));
        }
        let Some(closing) = &mut self.closing else { return Poll::Ready(Ok(())) };
        let closed = ready!(Pin::new(closing).poll(cx));
        self.closing = None;
        Poll::Ready(closed.unwrap_or_else(|e| Err(CloseReason::Device(e.to_string()).into())))
    }

    /// Ends the half at once, as [`SendHalf::abort`].
    pub fn abort(mut self) {
        if let Some(half) = self.half.take() {
            half.abort();
        }
    }

    /// Closes the half on a thread of the runtime for blocking work, for at most `limit`; nothing
    /// waits for that.
    pub(crate) fn close_aside(mut self, limit: Duration) {
        let Some(half) = self.half.take() else { return };
        let closing = move || {
            if let Err(e) = half.close_timeout(limit) {
                tracing::debug!(error = %e, "closed before all was delivered");
            }
        };
        drop(BlockingTask::new(closing));
    }

    /// Returns the outcome of `attempt`; as long as it has none, arms the half.
    pub(crate) fn poll_with<T>(
        &mut self,
        cx: &mut Context<'_>,
        attempt: impl Fn(&mut S) -> Result<Option<T>, SendError>,
    ) -> Poll<Result<T, SendError>> {
        let Sender { half: Some(half), waiter, .. } = self else {
            return Poll::Ready(Err(CloseReason::Closed.into()));
        };
        ready!(waiter.poll_turn(cx));
        loop {
            // The outcomes are matched here: a whole result that is passed on is copied as bytes,
            // which waits for every store before it (a third of the time of a send).
            match attempt(half) {
                Ok(Some(done)) => {
                    waiter.found();
                    return Poll::Ready(Ok(done));
                }
                Ok(None) => {}
                Err(e) => return Poll::Ready(Err(e)),
            }
            ready!(waiter.poll(cx, || half.arm()))?;
        }
    }
}

/// Nothing, if there was no time for it.
fn in_time(done: Result<(), SendError>) -> Result<Option<()>, SendError> {
    match done {
        Ok(()) => Ok(Some(())),
        Err(SendError::TimedOut { .. }) => Ok(None),
        Err(e) => Err(e),
    }
}

impl<S: SendHalf + 'static> Drop for Sender<S> {
    fn drop(&mut self) {
        drop_aside(self.half.take());
    }
}
