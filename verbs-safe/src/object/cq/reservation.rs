//! Room that a queue has reserved for its completions.

use std::sync::Arc;

use super::CqInner;
use crate::error::CqTooSmall;
use crate::ids::SrqId;

/// Room in a completion queue, given back on drop. It keeps the queue alive.
pub(crate) struct Reservation {
    cq: Arc<CqInner>,
    entries: u32,
    srq: Option<SrqId>,
}

impl Reservation {
    pub(crate) fn new(
        cq: &Arc<CqInner>,
        entries: u32,
        srq: Option<SrqId>,
    ) -> Result<Reservation, CqTooSmall> {
        cq.reservations.reserve(entries, srq)?;
        Ok(Reservation { cq: cq.clone(), entries, srq })
    }

    pub(crate) fn cq(&self) -> &CqInner {
        &self.cq
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.cq.reservations.release(self.entries, self.srq);
    }
}
