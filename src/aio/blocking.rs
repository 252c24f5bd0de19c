//! Work that waits, on a thread of its own: one of the runtime for blocking work, or in a world one
//! of the world.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use host::sync::Mutex;
use tokio::runtime::Handle;
use tokio::task::JoinHandle;

/// Future of the result of blocking work. If it is dropped, the work continues.
#[derive(Debug)]
pub(super) enum BlockingTask<T> {
    Runtime(JoinHandle<T>),
    World(Arc<Mutex<ResultSlot<T>>>),
}

/// Result of the work, once there is one, and the task that waits for it.
#[derive(Debug)]
pub(super) struct ResultSlot<T> {
    value: Option<io::Result<T>>,
    waker: Option<Waker>,
}

/// Reports whether a runtime, or a thread of a world, polls the task of the caller.
pub(super) fn can_begin() -> bool {
    host::future::is_running() || Handle::try_current().is_ok()
}

impl<T: Send + 'static> BlockingTask<T> {
    /// Begins it.
    ///
    /// # Panics
    /// If no runtime runs the caller.
    pub(super) fn new(work: impl FnOnce() -> T + Send + 'static) -> BlockingTask<T> {
        if !host::future::is_running() {
            return BlockingTask::Runtime(tokio::task::spawn_blocking(work));
        }
        let outcome = Arc::new(Mutex::new(ResultSlot { value: None, waker: None }));
        let tell = Arc::clone(&outcome);
        let end = move |value| {
            let mut outcome = tell.lock();
            outcome.value = Some(value);
            outcome.waker.take()
        };
        let tell = end.clone();
        let work = move || tell(Ok(work())).map_or((), Waker::wake);
        let started = match host::is_short() {
            true => Err(io::ErrorKind::WouldBlock.into()),
            false => host::thread::spawn("blocking", work).map(drop),
        };
        if let Err(e) = started {
            let _ = end(Err(e));
        }
        BlockingTask::World(outcome)
    }
}

impl<T> Future for BlockingTask<T> {
    /// An error: the runtime was shut down before there was a thread, or a world refuses one. A panic of the work is
    /// resumed by the poll.
    type Output = io::Result<T>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<T>> {
        match &mut *self {
            BlockingTask::Runtime(joined) => Pin::new(joined).poll(cx).map(finished),
            BlockingTask::World(outcome) => {
                let mut outcome = outcome.lock();
                match outcome.value.take() {
                    Some(value) => Poll::Ready(value),
                    None => {
                        outcome.waker = Some(cx.waker().clone());
                        Poll::Pending
                    }
                }
            }
        }
    }
}

fn finished<T>(done: Result<T, tokio::task::JoinError>) -> io::Result<T> {
    done.or_else(|e| match e.try_into_panic() {
        Ok(panic) => std::panic::resume_unwind(panic),
        Err(_) => Err(io::Error::other("the runtime was shut down")),
    })
}
