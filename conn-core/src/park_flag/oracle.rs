//! The steps of a thread that sleeps and of threads that publish work, in any order, and a naive
//! model of the [`ParkFlag`]: whether it has announced its sleep. `loom-tests` covers memory
//! ordering.

use arbitrary::Arbitrary;

use super::*;
use crate::exhaustive::CheckedMachine;

/// One step of one thread. Each is one operation on the flag or on the work, so that a
/// history is an interleaving. A step that is not that thread's next one is left out.
#[derive(Arbitrary, Clone, Copy, Debug)]
pub enum ParkFlagOp {
    /// The sleeper announces its sleep.
    Announce,
    /// It looks for work: takes it, or falls asleep.
    Look,
    /// It has found work, or was woken, and takes its announcement back.
    Retract,
    /// The sleeping thread wakes, if a wake-up has arrived.
    WakeUp,
    /// A publisher publishes work.
    Publish(u8),
    /// A publisher asks whether it has to wake the sleeper, and does so.
    Ask(u8),
}

/// Next step of the sleeper.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SleeperPhase {
    Awake,
    Announced,
    HasToRetract,
    Asleep,
}

/// The flag, its model, and the threads around it.
#[derive(Debug)]
pub struct CheckedParkFlag {
    machine: ParkFlag,
    announced: bool,
    phase: SleeperPhase,
    /// Wake-ups that the sleeper has not consumed.
    wake_ups: u32,
    /// True if there is work.
    work: bool,
    /// Publishers that have published and not asked yet.
    owing: u32,
}

impl CheckedParkFlag {
    /// An awake thread, and nothing to do.
    #[must_use]
    #[allow(clippy::new_without_default, reason = "as the other oracles")]
    pub fn new() -> Self {
        let (machine, phase) = (ParkFlag::new(), SleeperPhase::Awake);
        Self { machine, announced: false, phase, wake_ups: 0, work: false, owing: 0 }
    }

    fn announce(&mut self) {
        if self.phase == SleeperPhase::Awake {
            self.machine.announce();
            (self.announced, self.phase) = (true, SleeperPhase::Announced);
        }
    }

    fn look(&mut self) {
        if self.phase == SleeperPhase::Announced {
            let found = std::mem::take(&mut self.work);
            self.phase = if found { SleeperPhase::HasToRetract } else { SleeperPhase::Asleep };
        }
    }

    fn retract(&mut self) {
        if self.phase == SleeperPhase::HasToRetract {
            let first = self.machine.retract();
            assert_eq!(first, self.announced, "retract tells whether a publisher was first");
            (self.announced, self.phase) = (false, SleeperPhase::Awake);
        }
    }

    fn wake_up(&mut self) {
        if self.phase == SleeperPhase::Asleep && self.wake_ups > 0 {
            self.wake_ups -= 1;
            self.phase = SleeperPhase::HasToRetract;
        }
    }

    fn publish(&mut self, publisher: u32) {
        self.work = true;
        self.owing |= publisher;
    }

    fn ask(&mut self, publisher: u32) {
        let wakes = self.machine.should_wake();
        assert_eq!(wakes, self.announced, "one wake-up for an announcement");
        self.announced = false;
        self.wake_ups += u32::from(wakes);
        self.owing &= !publisher;
    }
}

impl Clone for CheckedParkFlag {
    fn clone(&self) -> Self {
        let state = self.machine.state.load(Ordering::Relaxed);
        Self { machine: ParkFlag { state: AtomicU32::new(state) }, ..*self }
    }
}

impl CheckedMachine for CheckedParkFlag {
    type Op = ParkFlagOp;

    fn apply(&mut self, op: ParkFlagOp) {
        match op {
            ParkFlagOp::Announce => self.announce(),
            ParkFlagOp::Look => self.look(),
            ParkFlagOp::Retract => self.retract(),
            ParkFlagOp::WakeUp => self.wake_up(),
            ParkFlagOp::Publish(publisher) => self.publish(1 << (publisher % 32)),
            ParkFlagOp::Ask(publisher) => self.ask(1 << (publisher % 32)),
        }
        let missed = self.phase == SleeperPhase::Asleep && self.work && self.owing == 0;
        assert!(!missed || self.wake_ups > 0, "it sleeps through work");
        let state = self.machine.state.load(Ordering::Relaxed);
        assert_eq!(state == ANNOUNCED, self.announced);
    }
}
