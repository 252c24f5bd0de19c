//! Whose turn is next, and how far time passes until then.

use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec};

use super::{MANY_SPINS, Spins, TaskStatus, WaitReason, WorldState};

/// Vain polls of an idle thread after another one's time has come, which may do something then.
const MORE_SPINS: u32 = 8;

/// One of so many turns may go to an idle thread while others have something to do: it may have
/// been given something without a happening.
const IDLE_TURN_ONE_IN: u64 = 16;

/// Tries, a millisecond each, to get a lock that is held outside of the world.
const OUTSIDE_TRIES: u32 = 50;

impl WorldState {
    /// The thread that runs next, with time passed until one can; `None` if the world is over.
    /// `without` does not run if another one can: it has nothing to do.
    pub(in crate::world) fn choose(&mut self, without: Option<usize>) -> Option<usize> {
        loop {
            if self.is_over {
                return None;
            }
            let mut runnable = self.runnable();
            if let Some(without) = without
                && runnable.len() > 1
            {
                runnable.retain(|id| *id != without);
            }
            if self.nature.own_processors && !self.random.one_in(IDLE_TURN_ONE_IN) {
                let may_wait =
                    |id: &usize| self.tasks[*id].spins.may_wait(self.happenings, self.now);
                if !runnable.iter().all(may_wait) {
                    runnable.retain(|id| !may_wait(id));
                }
            }
            if !runnable.is_empty() {
                let id = self.random.pick(&runnable);
                self.mix(id as u64);
                self.running = id;
                return Some(id);
            }
            if self.tasks.iter().all(|task| matches!(task.status, TaskStatus::Ended)) {
                self.is_over = true;
            } else if let Some(at) = self.next_time() {
                self.now = at;
                if self.now >= self.limits.time.as_nanos() as u64 {
                    self.fail(format!("no end after {:?} of virtual time", self.limits.time));
                }
            } else if !self.tries_locks_again() {
                self.fail("every thread waits, and nothing ends a wait".to_owned());
            }
        }
    }

    /// Makes threads ready whose wait is over, and returns those that can run now.
    fn runnable(&mut self) -> Vec<usize> {
        let now = self.now;
        self.timers.retain(|(_, at, fd)| {
            let is_due = *at <= now;
            // A count that is full is readable, too.
            let _ = is_due.then(|| rustix::io::write(fd, &1_u64.to_ne_bytes()));
            !is_due
        });
        let with_input = self.with_input();
        let mut runnable = Vec::with_capacity(self.tasks.len());
        let mut has_timed_out = false;
        for (id, task) in self.tasks.iter_mut().enumerate() {
            let mut is_late = false;
            let is_over = match &task.status {
                TaskStatus::Ready => true,
                TaskStatus::Blocked { on: WaitReason::Fds(_), .. } if with_input.contains(&id) => {
                    true
                }
                TaskStatus::Blocked { on: WaitReason::Token, .. } if task.has_token => true,
                TaskStatus::Blocked { on: WaitReason::Watched, .. }
                    if task.watch.is_signalled() =>
                {
                    true
                }
                TaskStatus::Blocked { deadline, .. } => {
                    is_late = true;
                    deadline.is_some_and(|at| at <= now)
                }
                TaskStatus::Ended => continue,
            };
            if !is_over {
                continue;
            }
            if !matches!(task.status, TaskStatus::Ready) {
                if matches!(&task.status, TaskStatus::Blocked { on: WaitReason::Lock(_), .. }) {
                    self.lock_waiters -= 1;
                }
                let is_watch =
                    matches!(&task.status, TaskStatus::Blocked { on: WaitReason::Watched, .. });
                task.status = TaskStatus::Ready;
                has_timed_out |= is_late && !is_watch;
                if !is_late && !is_watch {
                    self.happenings += 1;
                    self.happened_at = now;
                }
                if self.random.one_in(self.nature.stall_one_in) {
                    task.not_before = now + self.random.below(self.nature.stall_ns);
                }
            }
            if task.not_before <= now && self.stopped_until[task.node.index()] <= now {
                runnable.push(id);
            }
        }
        if has_timed_out {
            for Spins { count, until, .. } in self.tasks.iter_mut().map(|task| &mut task.spins) {
                *count = if until.is_some() { 0 } else { MANY_SPINS - MORE_SPINS }.min(*count);
            }
        }
        runnable
    }

    /// The threads that wait for input of a descriptor which has some.
    fn with_input(&self) -> Vec<usize> {
        let (mut polled, mut of) = (Vec::new(), Vec::new());
        for (id, task) in self.tasks.iter().enumerate() {
            let TaskStatus::Blocked { on: WaitReason::Fds(fds), .. } = &task.status else {
                continue;
            };
            polled.extend(fds.iter().map(|fd| PollFd::new(fd, PollFlags::IN)));
            of.resize(polled.len(), id);
        }
        let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
        if polled.is_empty() || rustix::event::poll(&mut polled, Some(&at_once)) == Ok(0) {
            return Vec::new();
        }
        let has_input = |polled: &PollFd<'_>| !polled.revents().is_empty();
        polled.iter().zip(of).filter(|(polled, _)| has_input(polled)).map(|(_, id)| id).collect()
    }

    /// Returns the next time at which a thread can run that cannot run now.
    pub(super) fn next_time(&self) -> Option<u64> {
        let times = self.tasks.iter().filter_map(|task| {
            let ready_at = match &task.status {
                TaskStatus::Ready => Some(task.not_before),
                TaskStatus::Blocked { deadline, .. } => *deadline,
                TaskStatus::Ended => None,
            };
            Some(ready_at?.max(self.stopped_until[task.node.index()]))
        });
        let times = times.chain(self.timers.iter().map(|(_, at, _)| *at));
        times.filter(|at| *at > self.now).min()
    }

    /// Locks may be held by threads outside of the world: those that wait for them try again.
    fn tries_locks_again(&mut self) -> bool {
        if self.lock_waiters == 0 || self.outside_tries >= OUTSIDE_TRIES {
            return false;
        }
        self.outside_tries += 1;
        std::thread::sleep(Duration::from_millis(1));
        self.lock_waiters = 0;
        for task in &mut self.tasks {
            if matches!(task.status, TaskStatus::Blocked { on: WaitReason::Lock(_), .. }) {
                task.status = TaskStatus::Ready;
            }
        }
        true
    }
}
