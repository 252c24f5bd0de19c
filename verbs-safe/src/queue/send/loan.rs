//! Buffers that requests land in, or send from: the queue has them meanwhile.

use std::sync::Arc;

use thiserror::Error;

use crate::error::{AttachError, StageError};
use crate::queue::pinned::{Entry, Item, MAX_ENTRIES};
use crate::queue::send::SendQueue;
use crate::queue::send::entries::RegionId;
use crate::queue::send::lent::LentMemory;
use crate::queue::send::op::{SendFlags, SendOp};
use crate::region::buffer::Buffer;
use crate::region::file::FileRegion;
use crate::region::registration::Registration;

/// A buffer that a send queue was lent, or a file. See [`SendQueue::lend`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct LoanId {
    region: RegionId,
    is_file: bool,
}

/// A buffer was not taken.
#[derive(Debug, Error)]
#[error("{reason}")]
pub struct LoanError {
    /// The buffer.
    pub buffer: Buffer,
    /// The reason.
    pub reason: AttachError,
}

/// A piece of a file was not taken.
#[derive(Debug, Error)]
#[error("{reason}")]
pub struct FileLoanError {
    /// The piece.
    pub region: FileRegion,
    /// The reason.
    pub reason: AttachError,
}

impl Drop for SendQueue {
    fn drop(&mut self) {
        // Without outstanding requests, lent memory is released at once.
        let is_idle = self.retired == self.staged;
        for lent in self.loans.drain().filter(|_| !is_idle) {
            self.qp.uses.pinned.keep(Item::Region(Arc::clone(lent.registration())));
        }
    }
}

/// Buffers of the user that requests land in, without a copy.
impl SendQueue {
    /// Lends a buffer to the queue, for requests to land in or to send from; the queue
    /// has it until it is [reclaimed](Self::reclaim). If the queue is dropped first, the
    /// buffer goes with its queue pair, as soon as no request can use it any more.
    ///
    /// # Errors
    /// [`LoanError`] with the buffer, which is another domain's.
    ///
    /// ```
    /// # let devices = verbs_safe::devices(soft_rnic::table())?;
    /// # let context = devices[0].open()?;
    /// # let pd = context.alloc_pd()?;
    /// # use verbs_safe::*;
    /// # let gid = context.choose_gid(1, None)?;
    /// # let cq = context.create_cq(CqConfig::new(256))?;
    /// # let config = QueuePairConfig { access: RemoteAccess::ALL, ..QueuePairConfig::new(&cq, &cq) };
    /// # let mut qp = pd.create_qp(&config, ())?;
    /// # let end = qp.control.endpoint(1, gid, 7)?;
    /// # qp.control.connect(&end, &ConnectAttr::new(gid.index as u8, 7))?; // to itself
    /// let mut theirs = pd.register_buffer(4096, BufferConfig::READABLE)?;
    /// theirs[..5].copy_from_slice(b"hello");
    /// let remote = theirs.remote(0, 5)?; // sent to the peer that reads it
    ///
    /// let ours = pd.register_buffer(4096, BufferConfig::default())?;
    /// let loan = qp.send.lend(ours)?;
    /// let flags = SendFlags { signalled: true, ..SendFlags::default() };
    /// qp.send.stage_lent(loan, 0, SendOp::Read { len: 5, remote }, flags)?;
    /// qp.send.post()?;
    /// assert!(qp.send.reclaim(loan).is_none(), "the device has it");
    /// # let mut batch = CompletionBatch::new(8);
    /// # while qp.send.retired_total() < 1 {
    /// #     cq.poll(&mut batch)?;
    /// #     for completion in batch.drain() {
    /// #         qp.send.retire(&completion)?;
    /// #     }
    /// # }
    /// // When it has completed:
    /// let ours = qp.send.reclaim(loan).expect("it was retired");
    /// assert_eq!(&ours[..5], b"hello");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn lend(&mut self, buffer: Buffer) -> Result<LoanId, LoanError> {
        match self.enter(buffer.registration()) {
            Ok(entry) => {
                self.loans.put(entry.index(), LentMemory::Buffer(buffer));
                Ok(LoanId { region: RegionId(entry), is_file: false })
            }
            Err(reason) => Err(LoanError { buffer, reason }),
        }
    }

    /// Lends a piece of a file to the queue, for READs of
    /// [`MIN_READ_BYTES`](FileRegion::MIN_READ_BYTES) or more to land in: as
    /// [`lend`](Self::lend).
    ///
    /// # Errors
    /// [`FileLoanError`] with the piece, which is another domain's.
    pub fn lend_file(&mut self, file: FileRegion) -> Result<LoanId, FileLoanError> {
        match self.enter(file.registration()) {
            Ok(entry) => {
                self.loans.put(entry.index(), LentMemory::File(file));
                Ok(LoanId { region: RegionId(entry), is_file: true })
            }
            Err(reason) => Err(FileLoanError { region: file, reason }),
        }
    }

    /// Stages a one-sided request with bytes at `offset` of a lent buffer: as
    /// [`stage_at`](Self::stage_at).
    ///
    /// # Errors
    /// [`StageError`]; nothing has changed.
    #[inline]
    pub fn stage_lent(
        &mut self,
        loan: LoanId,
        offset: usize,
        op: SendOp,
        flags: SendFlags,
    ) -> Result<(), StageError> {
        let for_files = matches!(op, SendOp::Read { len, .. } if len >= FileRegion::MIN_READ_BYTES);
        if loan.is_file && !for_files {
            return Err(StageError::NotForFiles);
        }
        self.stage_at(loan.region, offset, op, flags)
    }

    /// Takes a lent buffer back: `None` as long as a request that uses it is staged or in
    /// flight, and if there is no such loan, or it is a file.
    pub fn reclaim(&mut self, loan: LoanId) -> Option<Buffer> {
        match self.reclaim_lent(loan, false)? {
            LentMemory::Buffer(buffer) => Some(buffer),
            LentMemory::File(_) => None,
        }
    }

    /// Takes a lent piece of a file back, as [`reclaim`](Self::reclaim) a buffer.
    pub fn reclaim_file(&mut self, loan: LoanId) -> Option<FileRegion> {
        match self.reclaim_lent(loan, true)? {
            LentMemory::Buffer(_) => None,
            LentMemory::File(file) => Some(file),
        }
    }

    fn enter(&mut self, registration: &Registration) -> Result<Entry, AttachError> {
        let local = self.local(registration)?;
        self.regions.lend(local).ok_or(AttachError::TooMany(MAX_ENTRIES))
    }

    fn reclaim_lent(&mut self, loan: LoanId, is_file: bool) -> Option<LentMemory> {
        let entry = loan.region.0;
        if loan.is_file != is_file || !self.regions.give_back(entry, self.retired) {
            return None;
        }
        self.loans.take(entry.index())
    }
}
