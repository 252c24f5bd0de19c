//! Threads: starting, parking and waking them.

use std::io;
use std::time::Duration;

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

#[cfg(feature = "world")]
use crate::world::{Task, here};

/// A thread that others can wake.
#[derive(Debug, Clone)]
pub struct Thread(ThreadInner);

#[derive(Debug, Clone)]
enum ThreadInner {
    Host(std::thread::Thread),
    #[cfg(feature = "world")]
    World(Task),
}

impl Thread {
    /// Wakes the thread out of [`park_timeout`], or lets its next one return at once.
    pub fn unpark(&self) {
        match &self.0 {
            ThreadInner::Host(thread) => thread.unpark(),
            #[cfg(feature = "world")]
            ThreadInner::World(task) => task.unpark(),
        }
    }
}

/// The calling thread.
#[must_use]
pub fn current() -> Thread {
    in_world!(return |here| Thread(ThreadInner::World(here.task())));
    Thread(ThreadInner::Host(std::thread::current()))
}

/// Sleeps until [`Thread::unpark`], for `time` at most; may return early.
pub fn park_timeout(time: Duration) {
    in_world!(return |here| here.park(time));
    std::thread::park_timeout(crate::time::by_system(time));
}

/// Gives the processor to another thread.
#[inline]
pub fn yield_now() {
    in_world!(return |here| here.spin("yield", None));
    std::thread::yield_now();
}

/// [`yield_now`] of a thread that polls, until `until` at the latest if it is given: in a world in
/// which all threads poll, time passes until then. Where each thread has a processor, this one
/// sleeps until an address changes that it [watches](crate::watch) since its last `yield_until`,
/// and for 20 µs at most.
#[inline]
pub fn yield_until(until: Option<std::time::Instant>) {
    in_world!(return |here| here.wait_for_change(until));
    let _ = until;
    std::thread::yield_now();
}

/// Keeps the processor until then. Where each thread of a world has one, others run meanwhile.
#[inline]
pub fn busy_wait_until(until: std::time::Instant) {
    #[cfg(feature = "world")]
    if here(|here| here.busy_wait_until(until)) == Some(true) {
        return;
    }
    while crate::time::now() < until {
        spin_loop();
    }
}

/// Has the calling thread, with the threads and processes that it starts, stay on the processor of
/// this number, among those that it may run on. Threads of a world run one at a time: handing over
/// to one on another processor takes up to ten times as long.
pub fn pin_to_cpu(number: usize) {
    let Ok(all) = sched_getaffinity(None) else { return };
    let allowed: Vec<usize> = (0..CpuSet::MAX_CPU).filter(|at| all.is_set(*at)).collect();
    let mut one = CpuSet::new();
    if let Some(at) = number.checked_rem(allowed.len()).map(|nth| allowed[nth]) {
        one.set(at);
        // It only saves time.
        let _ = sched_setaffinity(None, &one);
    }
}

/// The number of the processor that the calling thread runs on: threads of a world share one.
#[inline]
#[must_use]
pub fn processor() -> u32 {
    if crate::is_in_world() { 0 } else { rustix::thread::sched_getcpu() as u32 }
}

/// A poll that has found nothing, of which another one follows.
#[inline]
pub fn spin_loop() {
    #[cfg(feature = "world")]
    here(|here| here.spin("spin", None));
    std::hint::spin_loop();
}

/// [`spin_loop`] `spins` times, without a poll in between: in a world once, since time that passes
/// without one is of no use.
#[inline]
pub fn pause(spins: u32) {
    let spins = if crate::is_in_world() { 1 } else { spins };
    (0..spins).for_each(|_| spin_loop());
}

/// The result of a thread that has been started.
#[derive(Debug)]
pub struct JoinHandle<T> {
    handle: std::thread::JoinHandle<T>,
    #[cfg(feature = "world")]
    task: Option<Task>,
}

impl<T> JoinHandle<T> {
    /// Waits for the thread's end.
    ///
    /// # Errors
    /// Payload of the thread's panic.
    pub fn join(self) -> std::thread::Result<T> {
        #[cfg(feature = "world")]
        if let Some(task) = &self.task {
            task.wait_for_end();
        }
        self.handle.join()
    }

    /// Reports whether the thread has ended.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        #[cfg(feature = "world")]
        if let Some(task) = &self.task {
            return task.has_ended();
        }
        self.handle.is_finished()
    }

    /// The thread.
    #[must_use]
    pub fn thread(&self) -> Thread {
        #[cfg(feature = "world")]
        if let Some(task) = &self.task {
            return Thread(ThreadInner::World(task.clone()));
        }
        Thread(ThreadInner::Host(self.handle.thread().clone()))
    }
}

/// Starts a thread. In a world, it belongs to the node of the calling one.
///
/// # Errors
/// The system's: no thread is left.
pub fn spawn<T: Send + 'static>(
    name: &str,
    run: impl FnOnce() -> T + Send + 'static,
) -> io::Result<JoinHandle<T>> {
    let builder = std::thread::Builder::new().name(name.into());
    #[cfg(feature = "world")]
    if let Some(task) = here(|here| here.add_task(name)) {
        let started = task.clone();
        let handle =
            builder.spawn(move || started.run(run)).inspect_err(|_| task.never_started())?;
        return Ok(JoinHandle { handle, task: Some(task) });
    }
    let handle = builder.spawn(run)?;
    Ok(JoinHandle {
        handle,
        #[cfg(feature = "world")]
        task: None,
    })
}

/// Threads that end before [`scope`] returns.
#[derive(Debug)]
pub struct Scope<'scope, 'env: 'scope> {
    scope: &'scope std::thread::Scope<'scope, 'env>,
    #[cfg(feature = "world")]
    tasks: std::sync::Mutex<Vec<Task>>,
}

/// A thread of a [`Scope`].
#[derive(Debug)]
pub struct ScopedJoinHandle<'scope, T> {
    handle: std::thread::ScopedJoinHandle<'scope, T>,
    #[cfg(feature = "world")]
    task: Option<Task>,
}

impl<T> ScopedJoinHandle<'_, T> {
    /// Waits for the thread's end.
    ///
    /// # Errors
    /// Payload of the thread's panic.
    pub fn join(self) -> std::thread::Result<T> {
        #[cfg(feature = "world")]
        if let Some(task) = &self.task {
            task.wait_for_end();
        }
        self.handle.join()
    }
}

impl<'scope, 'env> Scope<'scope, 'env> {
    /// Starts a thread that may borrow what outlives the scope.
    ///
    /// # Errors
    /// The system's: no thread is left.
    pub fn spawn<T: Send + 'scope>(
        &self,
        run: impl FnOnce() -> T + Send + 'scope,
    ) -> io::Result<ScopedJoinHandle<'scope, T>> {
        let builder = std::thread::Builder::new();
        #[cfg(feature = "world")]
        if let Some(task) = here(|here| here.add_task("scoped")) {
            let started = task.clone();
            let run = move || started.run(run);
            let handle =
                builder.spawn_scoped(self.scope, run).inspect_err(|_| task.never_started())?;
            self.tasks.lock().unwrap_or_else(std::sync::PoisonError::into_inner).push(task.clone());
            return Ok(ScopedJoinHandle { handle, task: Some(task) });
        }
        Ok(ScopedJoinHandle {
            handle: builder.spawn_scoped(self.scope, run)?,
            #[cfg(feature = "world")]
            task: None,
        })
    }
}

/// Calls `run` with a [`Scope`], and waits for the threads that it starts there.
pub fn scope<'env, T>(run: impl for<'scope> FnOnce(&Scope<'scope, 'env>) -> T) -> T {
    std::thread::scope(|scope| {
        let ours = Scope {
            scope,
            #[cfg(feature = "world")]
            tasks: std::sync::Mutex::default(),
        };
        let done = run(&ours);
        #[cfg(feature = "world")]
        for task in ours.tasks.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner) {
            task.wait_for_end();
        }
        done
    })
}
