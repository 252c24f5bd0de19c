//! Moderation of events: one for several completions, or for all that arrive within a time.
//!
//! ```text
//!   armed ── a completion that it is armed for ──> held ── count reached, or period over ──> fired
//! ```
//!
//! An event is armed, and fires once, as without moderation; between that it is held back until as
//! many completions as `count` says have arrived, the first one of which is what it was armed for,
//! or until the period is over that begins with that one. Completions that arrive while no event is
//! armed are not counted.

use std::sync::Arc;

use rustix::io::Errno;

use crate::errno;
use crate::limits;
use crate::objects::cq::producer::{ArmState, CqProducer, Moderation};
use crate::objects::state::{Cq, TimedEvent};

impl Moderation {
    /// Reports whether each event fires at once.
    fn is_off(&self) -> bool {
        self.count == 1 || (self.count == 0 && self.period_us == 0)
    }
}

impl Cq {
    /// From now on events are held back; one that is held back already fires. Nothing changes if
    /// the device cannot hold them back for that time.
    pub(crate) fn moderate(self: &Arc<Cq>, count: u16, period_us: u16) -> Result<(), Errno> {
        if count > limits::MAX_CQ_COUNT || period_us > limits::MAX_CQ_PERIOD_US {
            return Err(errno::EINVAL);
        }
        let mut producer = self.producer.lock();
        let mut moderation = self.moderation.lock();
        let held = moderation.held.take();
        *moderation = Moderation { count, period_us, held: None };
        producer.is_moderated = !moderation.is_off();
        if held.is_some() {
            self.fire(&mut producer);
        }
        Ok(())
    }

    /// Completions from index `first` on have become visible: fires the event that was armed, or
    /// holds it back.
    #[cold]
    pub(super) fn notify_moderated(self: &Arc<Cq>, producer: &mut CqProducer, first: u32) {
        let mut moderation = self.moderation.lock();
        let is_held = moderation.held.is_some();
        if !is_held && !producer.fires() {
            return;
        }
        let first = moderation.held.map_or(first, |(first, _)| first);
        let count = u32::from(moderation.count);
        if count > 0 && producer.published.wrapping_sub(first) >= count {
            moderation.held = None;
            self.fire(producer);
        } else if !is_held {
            moderation.held = Some((first, self.deadline(moderation.period_us)));
        }
    }

    /// Arms the deadline of an event that is held back from now on.
    fn deadline(self: &Arc<Cq>, period_us: u16) -> Option<u64> {
        let event = TimedEvent::Completions(Arc::downgrade(self));
        let delay = u64::from(period_us) * 1000;
        (delay > 0).then(|| self.context.device.raise_later(event, delay))
    }

    /// The queue is being destroyed: no event is raised any more, although queue pairs may keep the
    /// object.
    pub(crate) fn retire(&self) {
        let mut producer = self.producer.lock();
        producer.armed = ArmState::No;
        self.moderation.lock().held = None;
    }

    /// The deadline of an event has passed: it fires, if it is still held back.
    pub(crate) fn period_is_over(self: &Arc<Cq>, token: u64) {
        let mut producer = self.producer.lock();
        let mut moderation = self.moderation.lock();
        if moderation.held.is_some_and(|(_, deadline)| deadline == Some(token)) {
            moderation.held = None;
            self.fire(&mut producer);
        }
    }
}
