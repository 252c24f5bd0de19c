//! Doorbells: what a device refuses for want of memory is posted again.
//!
//! `ENOMEM` is no fault: a system says it if it is short of memory for a moment. So no connection
//! ends by it, unless it lasts. No completions are taken meanwhile: a queue has room for what our own
//! accounting lets through, unless its device grants more than it has. Such a device ends the
//! connection.

use std::time::Duration;

use verbs_safe::{
    Errno, PostInlineError, PostRecvError, PostRecvReason, PostSendError, RecvQueue, Recycle,
    SendOp, SendQueue,
};

use crate::wait::Deadline;

/// The longest time that a device may refuse what our own accounting has room for.
const BACKPRESSURE_LIMIT: Duration = Duration::from_secs(60);

/// A timeout for a device that refuses for want of memory; it begins with the first look.
#[derive(Debug, Default)]
struct BackpressureTimeout(Option<Deadline>);

impl BackpressureTimeout {
    #[cold]
    fn is_over(&mut self) -> bool {
        let limit = self.0.get_or_insert_with(|| Deadline::after(BACKPRESSURE_LIMIT));
        limit.has_passed(host::time::now())
    }
}

/// Posts everything staged. It takes no completions: the caller's accounting leaves room for what it stages.
///
/// # Errors
/// The device refuses for another reason, or for too long.
#[inline]
pub(crate) fn ring(queue: &mut SendQueue) -> Result<(), PostSendError> {
    match queue.post() {
        Ok(_) => Ok(()),
        Err(e) if e.retry => ring_again(queue),
        Err(e) => Err(e),
    }
}

#[cold]
fn ring_again(queue: &mut SendQueue) -> Result<(), PostSendError> {
    let mut timeout = BackpressureTimeout::default();
    loop {
        match queue.post() {
            Ok(_) => return Ok(()),
            Err(e) if e.retry && !timeout.is_over() => host::thread::yield_now(),
            Err(e) => return Err(e),
        }
    }
}

/// Posts a request at once whose bytes the device reads during the call, in two parts.
///
/// # Errors
/// As [`SendQueue::post_inline_parts`]; the device refuses for another reason, or for too long.
// Always inlined: an operation that is moved about is read before it is written, as the processor
// sees it, and that waits for all bytes of the message before.
#[inline(always)]
pub(crate) fn post_inline(
    queue: &mut SendQueue,
    parts: [&[u8]; 2],
    op: SendOp,
    signalled: bool,
) -> Result<(), PostInlineError> {
    match queue.post_inline_parts(parts, op, signalled) {
        Err(PostInlineError::Post(e)) if e.retry => post_inline_again(queue, parts, op, signalled),
        posted => posted,
    }
}

#[cold]
fn post_inline_again(
    queue: &mut SendQueue,
    parts: [&[u8]; 2],
    op: SendOp,
    signalled: bool,
) -> Result<(), PostInlineError> {
    let mut timeout = BackpressureTimeout::default();
    loop {
        match queue.post_inline_parts(parts, op, signalled) {
            Err(PostInlineError::Post(e)) if e.retry && !timeout.is_over() => {
                host::thread::yield_now();
            }
            posted => return posted,
        }
    }
}

/// Posts receives into these slots.
///
/// # Errors
/// As [`RecvQueue::post`]; the device refuses for another reason, or for too long.
pub(crate) fn post_receives<R: Recycle>(
    queue: &mut RecvQueue<R>,
    mut slots: &[u32],
) -> Result<(), PostRecvError> {
    let mut timeout = BackpressureTimeout::default();
    while let Err(e) = queue.post(slots) {
        wait_for_memory(&e, &mut timeout)?;
        slots = &slots[e.posted as usize..];
    }
    Ok(())
}

/// Posts the receives that have gathered; returns their number.
///
/// # Errors
/// As [`post_receives`]: what the device did not take stays gathered.
pub(crate) fn post_gathered<R: Recycle>(queue: &mut RecvQueue<R>) -> Result<u32, PostRecvError> {
    let (mut timeout, mut posted) = (BackpressureTimeout::default(), 0);
    loop {
        match queue.post_gathered() {
            Ok(rest) => return Ok(posted + rest),
            Err(e) => {
                wait_for_memory(&e, &mut timeout)?;
                posted += e.posted;
            }
        }
    }
}

#[cold]
fn wait_for_memory(
    error: &PostRecvError,
    timeout: &mut BackpressureTimeout,
) -> Result<(), PostRecvError> {
    let is_transient = error.reason == PostRecvReason::Refused(Errno::ENOMEM);
    if !is_transient || timeout.is_over() {
        return Err(*error);
    }
    host::thread::yield_now();
    Ok(())
}

#[cfg(test)]
mod tests;
