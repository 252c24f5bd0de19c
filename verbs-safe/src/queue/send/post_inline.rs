//! Requests with bytes in the caller's memory: posted at once, and inline.

use verbs_sys::{ibv_send_flags as flag, ibv_sge};

use crate::error::{PostInlineError, StageError};
use crate::queue::send::SendQueue;
use crate::queue::send::check::check_remote;
use crate::queue::send::op::{SendFlags, SendOp, lands};

impl SendQueue {
    /// Posts a WRITE of `bytes` at once, in one list with all staged requests. The device copies
    /// the bytes before the call returns, so that they need no slot and no region. `op` has their
    /// length: 1 to [`max_inline`](Self::max_inline).
    ///
    /// ```
    /// # let devices = verbs_safe::devices(soft_rnic::table())?;
    /// # let context = devices[0].open()?;
    /// # let pd = context.alloc_pd()?;
    /// # use verbs_safe::*;
    /// # let gid = context.choose_gid(1, None)?;
    /// # let cq = context.create_cq(CqConfig::new(256))?;
    /// let access = RemoteAccess::ALL;
    /// let config = QueuePairConfig { access, max_inline: 4096, ..QueuePairConfig::new(&cq, &cq) };
    /// let mut qp = pd.create_qp(&config, ())?;
    /// # let end = qp.control.endpoint(1, gid, 7)?;
    /// # qp.control.connect(&end, &ConnectAttr::new(gid.index as u8, 7))?; // to itself
    /// let shared = SharedRegionConfig { access, on_demand: false };
    /// let far = pd.register_shared(Mapping::new(4096)?, shared)?;
    /// let message = vec![7; 2000];
    /// let write = SendOp::Write { len: 2000, remote: far.remote(0, 2000)? };
    /// qp.send.post_inline(&message, write, true)?;
    /// drop(message);
    /// # let mut batch = CompletionBatch::new(8);
    /// # while qp.send.retired_total() < 1 {
    /// #     cq.poll(&mut batch)?;
    /// #     batch.drain().for_each(|completion| drop(qp.send.retire(&completion)));
    /// # }
    /// assert_eq!(far.load_u64(1992)?, 0x0707_0707_0707_0707);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`PostInlineError`]: the request was not posted. Requests staged before it may have been
    /// posted; the rest stays staged.
    #[inline]
    pub fn post_inline(
        &mut self,
        bytes: &[u8],
        op: SendOp,
        signalled: bool,
    ) -> Result<(), PostInlineError> {
        self.check_inline(bytes.len(), &op)?;
        let bits = SendFlags { signalled, ..SendFlags::default() }.to_raw();
        // Inline: the device reads the bytes while the call below lasts, and never later; it
        // looks up no key.
        self.write_place(op, bits | flag::IBV_SEND_INLINE.0, inline_sge(bytes));
        self.post().map(drop).map_err(|error| {
            self.withdraw();
            error.into()
        })
    }

    /// As [`post_inline`](Self::post_inline), of bytes in two parts, as a header and a payload.
    /// Make the queue pair with [`max_parts`](crate::QueuePairConfig::max_parts) 2.
    ///
    /// # Errors
    /// As of [`post_inline`](Self::post_inline).
    #[inline]
    pub fn post_inline_parts(
        &mut self,
        parts: [&[u8]; 2],
        op: SendOp,
        signalled: bool,
    ) -> Result<(), PostInlineError> {
        let [first, second] = parts;
        if first.is_empty() || second.is_empty() {
            return self.post_inline(if first.is_empty() { second } else { first }, op, signalled);
        }
        if self.max_parts < 2 {
            return Err(StageError::NotOffered.into());
        }
        self.check_inline(first.len().saturating_add(second.len()), &op)?;
        let bits = SendFlags { signalled, ..SendFlags::default() }.to_raw();
        let (place, mut list) = (self.next, parts.map(inline_sge));
        let work = self.write_place(op, bits | flag::IBV_SEND_INLINE.0, list[0]);
        (work.sg_list, work.num_sge) = (list.as_mut_ptr(), 2);
        // As in `post_inline`: the device reads the list while this call lasts, too.
        let posted = self.post();
        // SAFETY: the place is inside, and nothing else accesses it: the device keeps no pointer to
        // a posted request, and reads no place outside of the call.
        unsafe { (*place).work.sg_list = &raw mut (*place).entry };
        posted.map(drop).map_err(|error| {
            self.withdraw();
            error.into()
        })
    }

    #[inline]
    fn check_inline(&self, len: usize, op: &SendOp) -> Result<(), StageError> {
        let most = self.max_inline as usize;
        if op.remote().is_none() || lands(op.opcode()) {
            return Err(StageError::NotOffered);
        }
        if len == 0 || len > most || op.len() as usize != len {
            return Err(StageError::TooLong { len, slot_bytes: most });
        }
        self.check_offered(op)?;
        self.check_room()?;
        check_remote(op, op.len())
    }

    /// Takes back the last request, if it was not posted, so that no later call posts it.
    #[cold]
    fn withdraw(&mut self) {
        if self.staged > self.posted {
            self.next = self.places.at(self.place(self.staged));
            self.staged -= 1;
        }
    }
}

/// Returns the entry of bytes that go inline.
#[inline]
fn inline_sge(bytes: &[u8]) -> ibv_sge {
    // An inline request is checked to have less than 2^32.
    ibv_sge { addr: bytes.as_ptr().expose_provenance() as u64, length: bytes.len() as u32, lkey: 0 }
}
