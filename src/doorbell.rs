//! Doorbells: a post that the device refuses for lack of memory is repeated.
//!
//! `ENOMEM` is no failure: a system returns it while it is short of memory. So it ends a connection
//! only if it lasts. No completions are taken meanwhile: by our accounting a queue has room for
//! each request, unless its device granted more than it has. Such a device ends the connection.

use std::time::Duration;

use verbs_safe::{
    Errno, PostInlineError, PostRecvError, PostRecvReason, PostSendError, RecvQueue, Recycle,
    SendOp, SendQueue,
};

use crate::wait::Deadline;

/// The longest time that a device may refuse a request for which our accounting has room.
const BACKPRESSURE_LIMIT: Duration = Duration::from_secs(60);

/// A timeout for a device that lacks memory; it begins with the first call.
#[derive(Debug, Default)]
struct BackpressureTimeout(Option<Deadline>);

impl BackpressureTimeout {
    #[cold]
    fn is_over(&mut self) -> bool {
        let limit = self.0.get_or_insert_with(|| Deadline::after(BACKPRESSURE_LIMIT));
        limit.has_passed(host::time::now())
    }
}

/// Posts all staged requests. It takes no completions: the caller's accounting guarantees room for
/// them.
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

/// Posts an inline request at once: the device copies its bytes, in two parts, during the call.
///
/// # Errors
/// As [`SendQueue::post_inline_parts`]; the device refuses for another reason, or for too long.
// Always inlined: if the operation is copied through memory, its loads wait for all earlier stores,
// those of the message as well.
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
/// As [`post_receives`]: receives that the device did not take stay gathered.
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
