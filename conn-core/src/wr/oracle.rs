//! The operations of a [`SendTracker`], and a naive model of it: a list of the outstanding
//! requests.

use std::collections::VecDeque;

use arbitrary::Arbitrary;

use super::*;
use crate::exhaustive::CheckedMachine;

/// An operation on a tracker. Ids are relative, so that short histories meet them.
#[derive(Arbitrary, Clone, Copy, Debug)]
pub enum SendTrackerOp {
    /// A request is planned.
    Plan {
        /// True for the class control.
        control: bool,
        /// With [`SendTracker::plan_signalled`].
        forced: bool,
    },
    /// This number of requests are planned together.
    PlanRun {
        /// True for the class control.
        control: bool,
        /// Number of requests.
        n: u8,
    },
    /// The last `back` requests were not posted.
    Rollback {
        /// 0: none; more than are outstanding: refused.
        back: u8,
    },
    /// Rollback to a request that was never planned.
    RollbackBeyond,
    /// The `ahead`-th outstanding request completes.
    Complete {
        /// 0: the last one that has completed.
        ahead: u8,
    },
    /// The `ahead`-th outstanding request completes with an error.
    CompleteFailed {
        /// As for `Complete`.
        ahead: u8,
    },
}

/// The tracker and its model, with storage for 64 or more requests.
#[derive(Clone, Debug)]
pub struct CheckedSendTracker<const WORDS: usize> {
    machine: SendTracker<[u64; WORDS]>,
    model: SendTrackerModel,
}

#[derive(Clone, Debug)]
struct SendTrackerModel {
    data_slots: usize,
    depth: usize,
    signal_every: u64,
    completed: u64,
    /// For each outstanding request, true if it is signalled.
    outstanding: VecDeque<bool>,
}

impl<const WORDS: usize> CheckedSendTracker<WORDS> {
    /// Both, at the start.
    ///
    /// # Errors
    /// As [`SendTracker::with_storage`].
    pub fn new(config: SendTrackerConfig) -> Result<Self, SendTrackerConfigError> {
        // Storage need not be clean.
        let machine = SendTracker::with_storage(config, [0x5555_5555_5555_5555; WORDS])?;
        let data_slots = config.depth - config.control_slots;
        let model = SendTrackerModel {
            data_slots: data_slots as usize,
            depth: config.depth as usize,
            signal_every: config.signal_every.min(data_slots).into(),
            completed: 0,
            outstanding: VecDeque::new(),
        };
        Ok(Self { machine, model })
    }

    fn check(&self) {
        let (machine, model) = (&self.machine, &self.model);
        assert_eq!(machine.outstanding() as usize, model.outstanding.len());
        assert_eq!(machine.next_id().0, model.next());
        assert_eq!(machine.last_completed().0, model.completed);
        for id in model.completed.saturating_sub(1)..model.next() + 1 {
            assert_eq!(machine.is_complete(WrId(id)), id <= model.completed);
            assert_eq!(machine.will_complete(WrId(id)), model.will_complete(id), "{id}");
        }
        let signalled = model.outstanding.contains(&true);
        assert_eq!(machine.signalled_outstanding(), signalled);
        let bits: u32 = machine.out_of_turn.iter().map(|word| word.count_ones()).sum();
        assert_eq!(machine.recorded, bits, "a bit is left, or missing");
        for (class, slots) in [(WrClass::Data, model.data_slots), (WrClass::Control, model.depth)] {
            let free = slots.saturating_sub(model.outstanding.len());
            assert_eq!(machine.available(class) as usize, free);
            assert!(free > 0 || signalled, "full, and no completion is due");
        }
    }

    fn unchanged(&self, before: &SendTracker<[u64; WORDS]>) {
        let state = |t: &SendTracker<[u64; WORDS]>| {
            (t.completed, t.next, t.next_signal, t.last_signalled, t.recorded, t.out_of_turn)
        };
        assert_eq!(state(&self.machine), state(before), "a refused operation changed something");
    }
}

impl SendTrackerModel {
    fn next(&self) -> u64 {
        self.completed + 1 + self.outstanding.len() as u64
    }

    fn will_complete(&self, id: u64) -> bool {
        id <= self.completed
            || self.outstanding.iter().skip((id - self.completed - 1) as usize).any(|&s| s)
    }

    fn plan(&mut self, control: bool, forced: bool) -> Result<Planned, SendQueueFull> {
        if self.outstanding.len() >= if control { self.depth } else { self.data_slots } {
            return Err(SendQueueFull);
        }
        let id = self.next();
        let signalled = forced || id.is_multiple_of(self.signal_every);
        self.outstanding.push_back(signalled);
        Ok(Planned { id: WrId(id), signalled })
    }

    /// Number of requests that can be planned until one is signalled, that one included, or none
    /// can be.
    fn run(&self, control: bool) -> usize {
        let mut later = self.clone();
        let mut run = 0;
        while let Ok(planned) = later.plan(control, false) {
            run += 1;
            if planned.signalled {
                break;
            }
        }
        run
    }

    fn plan_run(&mut self, control: bool, n: usize) -> Result<Planned, SendQueueFull> {
        if n > self.run(control) {
            return Err(SendQueueFull);
        }
        let mut last = Planned { id: WrId(self.next() - 1), signalled: false };
        for _ in 0..n {
            last = self.plan(control, false)?;
        }
        Ok(last)
    }

    fn complete(&mut self, ahead: usize, failed: bool) -> Result<u32, CompletionError> {
        let at = ahead.checked_sub(1).ok_or(CompletionError::AlreadyRetired)?;
        let signalled = self.outstanding.get(at).ok_or(CompletionError::NeverPosted)?;
        if !failed && !signalled {
            return Err(CompletionError::NotSignalled);
        }
        self.outstanding.drain(..ahead);
        self.completed += ahead as u64;
        Ok(ahead as u32)
    }

    fn rollback(&mut self, back: usize) -> Result<u32, RollbackError> {
        let keep = self.outstanding.len().checked_sub(back);
        self.outstanding.truncate(keep.ok_or(RollbackError::AlreadyRetired)?);
        Ok(back as u32)
    }
}

impl<const WORDS: usize> CheckedMachine for CheckedSendTracker<WORDS> {
    type Op = SendTrackerOp;

    fn apply(&mut self, op: SendTrackerOp) {
        let before = self.machine.clone();
        let (machine, model) = (&mut self.machine, &mut self.model);
        let id = |ahead: u8| WrId(before.last_completed().0 + u64::from(ahead));
        let refused = match op {
            SendTrackerOp::Plan { control, forced } => {
                let class = if control { WrClass::Control } else { WrClass::Data };
                let planned =
                    if forced { machine.plan_signalled(class) } else { machine.plan(class) };
                assert_eq!(planned, model.plan(control, forced));
                planned.is_err()
            }
            SendTrackerOp::PlanRun { control, n } => {
                let class = if control { WrClass::Control } else { WrClass::Data };
                assert_eq!(machine.run(class) as usize, model.run(control));
                let planned = machine.plan_run(class, n.into());
                assert_eq!(planned, model.plan_run(control, n.into()));
                planned.is_err()
            }
            SendTrackerOp::Rollback { back } => {
                let first = WrId(before.next_id().0.saturating_sub(back.into()));
                let dropped = machine.rollback(first);
                assert_eq!(dropped, model.rollback(back.into()));
                dropped.is_err()
            }
            SendTrackerOp::RollbackBeyond => {
                let beyond = WrId(before.next_id().0 + 1);
                assert_eq!(machine.rollback(beyond), Err(RollbackError::NeverPlanned));
                true
            }
            SendTrackerOp::Complete { ahead } => {
                let retired = machine.complete(id(ahead));
                assert_eq!(retired, model.complete(ahead.into(), false));
                retired.is_err()
            }
            SendTrackerOp::CompleteFailed { ahead } => {
                let retired = machine.complete_failed(id(ahead));
                assert_eq!(retired, model.complete(ahead.into(), true));
                retired.is_err()
            }
        };
        if refused {
            self.unchanged(&before);
        }
        self.check();
    }
}
