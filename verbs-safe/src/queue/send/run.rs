//! Runs of SENDs: their common properties are looked up once.

use super::{RunBounds, SendFlags, SendOp, SendQueue};

/// A SEND that was staged in a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InRun {
    /// Its count: [`staged_total`](SendQueue::staged_total) right after it was staged.
    pub count: u64,
    /// True if it was the last one of the run.
    pub is_last: bool,
}

impl SendQueue {
    /// Begins a run of at most `most` SENDs of at most `max_len` bytes each, to be staged by
    /// [`stage_next`](Self::stage_next), and returns how many it can have: as many as there
    /// is room for now. It takes the place of the run before.
    ///
    /// ```
    /// # let devices = verbs_safe::devices(soft_rnic::table())?;
    /// # let context = devices[0].open()?;
    /// # let pd = context.alloc_pd()?;
    /// # use verbs_safe::{ConnectAttr, CqConfig, QueuePairConfig, RecvSide};
    /// # let gid = context.choose_gid(1, None)?;
    /// # let cq = context.create_cq(CqConfig::new(256))?;
    /// # let recv = RecvSide::Own { slots: 8, slot_bytes: 64 };
    /// # let mut qp = pd.create_qp(&QueuePairConfig { recv, ..QueuePairConfig::new(&cq, &cq) }, ())?;
    /// # let end = qp.control.endpoint(1, gid, 7)?;
    /// # qp.control.connect(&end, &ConnectAttr::new(gid.index as u8, 7))?; // to itself
    /// # qp.recv.as_mut().unwrap().post(&[0, 1, 2, 3, 4, 5, 6, 7])?;
    /// assert_eq!(qp.send.open_run(8, 64), 8);
    /// while let Ok(staged) = qp.send.stage_next(5, |slot| slot.copy_from_slice(b"hello")) {
    ///     if staged.is_last {
    ///         qp.send.signal_last();
    ///         qp.send.post()?;
    ///     }
    /// }
    /// assert_eq!(qp.send.posted_total(), 8);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[inline]
    pub fn open_run(&mut self, most: u32, max_len: usize) -> u32 {
        let offered = self.to_its_peer.has(SendOp::Send { len: 0 }.opcode());
        let places = u64::from(self.depth) - (self.staged - self.retired);
        let slots = u64::from(self.slots) - (self.slots_staged - self.slots_retired);
        let count = if offered { places.min(slots).min(most.into()) } else { 0 };
        self.run = RunBounds { end: self.staged + count, max_len: max_len.min(self.slot_bytes()) };
        count as u32
    }

    /// Ends the run early.
    #[inline]
    pub fn close_run(&mut self) {
        self.run = RunBounds::default();
    }

    /// Fills the first `len` bytes of the next slot and stages an unsignalled SEND of them:
    /// [`next_slot`](Self::next_slot) and [`stage`](Self::stage) in one step.
    ///
    /// # Errors
    /// Returns `fill`, not called, when the run is over, the message exceeds the run's `max_len`,
    /// or it is empty (it would take no slot). Nothing has changed.
    #[inline(always)]
    pub fn stage_next<F: FnOnce(&mut [u8])>(&mut self, len: usize, fill: F) -> Result<InRun, F> {
        if self.staged >= self.run.end || len == 0 || len > self.run.max_len {
            return Err(fill);
        }
        // SAFETY: the slot is initialised (it was mapped as zeroes) and stays mapped by
        // `self.ring`; below `run.end` it is neither staged nor in flight. `len` is at most a
        // slot's.
        fill(unsafe { std::slice::from_raw_parts_mut(self.slot.as_ptr(), len) });
        self.take_place(SendOp::Send { len: len as u32 }, SendFlags::default());
        Ok(InRun { count: self.staged, is_last: self.staged == self.run.end })
    }

    /// Makes the request that was staged last signalled; `false` if it is posted already.
    pub fn signal_last(&mut self) -> bool {
        if self.staged() == 0 {
            return false;
        }
        // SAFETY: the place is inside, and its request is not posted: nothing else
        // accesses it.
        let work = unsafe { &mut (*self.places.at(self.place(self.staged))).work };
        work.send_flags |= verbs_sys::ibv_send_flags::IBV_SEND_SIGNALED.0;
        true
    }
}
