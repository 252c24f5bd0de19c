//! A list of send requests that a program puts together by calls (`ibv_wr_start` to
//! `ibv_wr_complete`), and that is posted as a whole or not at all.
//!
//! It holds at most as many requests as the send queue has slots, each with at most one list, and
//! copies inline data when they are given: afterwards the program may change them.

use core::ffi::c_int;

use rustix::io::Errno;
use verbs_sys::*;

use crate::errno;

/// Requests that a program puts together, which become a list.
#[derive(Default)]
pub(crate) struct WrBatch {
    /// Operations that the queue pair was created for.
    ops: u64,
    requests: Vec<BatchedWr>,
    sges: Vec<ibv_sge>,
    inline: Vec<u8>,
    /// The first thing that was wrong.
    error: Option<Errno>,
}

/// A request, and where its data are in the batch.
struct BatchedWr {
    wr: ibv_send_wr,
    data: Option<BatchedData>,
}

/// Positions, because the vectors move while they grow.
enum BatchedData {
    Listed {
        first: usize,
    },
    /// One piece; its address is set when the batch is complete.
    Inline {
        first: usize,
        sge: usize,
    },
}

// SAFETY: the pointers are of the program's address handles, windows and regions, or are set by
// `link` and not followed after its caller.
unsafe impl Send for WrBatch {}

impl WrBatch {
    pub(crate) fn new(ops: u64) -> WrBatch {
        WrBatch { ops, ..WrBatch::default() }
    }

    /// Forgets all requests, and keeps the room for others.
    pub(crate) fn clear(&mut self) {
        self.requests.clear();
        self.sges.clear();
        self.inline.clear();
        self.error = None;
    }

    /// Something cannot be done: nothing of the batch will be posted.
    pub(crate) fn fail(&mut self, error: Errno) {
        self.error.get_or_insert(error);
    }

    /// Adds a request, whose operation is `op` among those of the creation.
    pub(crate) fn add(&mut self, op: ibv_qp_create_send_ops_flags, wr: ibv_send_wr, most: u32) {
        if self.ops & u64::from(op.0) == 0 {
            self.fail(errno::EOPNOTSUPP);
        } else if self.requests.len() >= most as usize || self.requests.try_reserve(1).is_err() {
            self.fail(errno::ENOMEM);
        } else if self.error.is_none() {
            self.requests.push(BatchedWr { wr, data: None });
        }
    }

    /// The request that was added last.
    fn last(&mut self) -> Option<&mut BatchedWr> {
        if self.requests.is_empty() {
            self.fail(errno::EINVAL);
        }
        if self.error.is_none() { self.requests.last_mut() } else { None }
    }

    /// Sets the destination of the last request.
    pub(crate) fn set_address(&mut self, to: ibv_send_wr__bindgen_ty_2__bindgen_ty_3) {
        if let Some(built) = self.last() {
            built.wr.wr.ud = to;
        }
    }

    /// Sets the shared receive queue that the last request names.
    pub(crate) fn set_srq(&mut self, remote_srqn: u32) {
        if let Some(built) = self.last() {
            built.wr.qp_type.xrc.remote_srqn = remote_srqn;
        }
    }

    /// The data of the last request, at most `most` pieces.
    pub(crate) fn set_list(&mut self, list: &[ibv_sge], most: u32) {
        let first = self.sges.len();
        if self.sges.try_reserve(list.len().min(most as usize)).is_err() {
            return self.fail(errno::ENOMEM);
        }
        let Some(built) = self.last() else { return };
        if built.data.is_some() || list.len() > most as usize {
            return self.fail(errno::EINVAL);
        }
        built.data = Some(BatchedData::Listed { first });
        built.wr.num_sge = list.len() as c_int;
        self.sges.extend_from_slice(list);
    }

    /// The data of the last request, at most `most` bytes in all, which are copied.
    ///
    /// # Safety
    /// The buffers are the program's, and can be read; other threads and devices access them with
    /// atomic operations only.
    pub(crate) unsafe fn set_inline(&mut self, list: &[ibv_data_buf], most: u32) {
        let (first, sge) = (self.inline.len(), self.sges.len());
        let len = list.iter().fold(0_usize, |sum, buf| sum.saturating_add(buf.length));
        let bytes = self.inline.try_reserve(len.min(most as usize));
        if bytes.and(self.sges.try_reserve(1)).is_err() {
            return self.fail(errno::ENOMEM);
        }
        let Some(built) = self.last() else { return };
        let is_there = |buf: &ibv_data_buf| buf.length == 0 || !buf.addr.is_null();
        if built.data.is_some() || len > most as usize || !list.iter().all(is_there) {
            return self.fail(errno::EINVAL);
        }
        built.data = Some(BatchedData::Inline { first, sge });
        built.wr.num_sge = 1;
        built.wr.send_flags |= ibv_send_flags::IBV_SEND_INLINE.0;
        self.sges.push(ibv_sge { addr: 0, length: len as u32, lkey: 0 });
        for buf in list.iter().filter(|buf| buf.length > 0) {
            let at = self.inline.len();
            // Bounded: by `most`, and reserved above.
            self.inline.resize(at + buf.length, 0);
            let to = self.inline[at..].as_mut_ptr();
            // SAFETY: the buffers of `list` can be read, and others access them atomically only
            // (see # Safety); `to` has `buf.length` bytes, which are ours.
            unsafe { crate::copy::in_order(to, buf.addr.cast(), buf.length) };
        }
    }

    /// The list of requests, NULL for none; it points into the batch.
    pub(crate) fn link(&mut self) -> Result<*mut ibv_send_wr, Errno> {
        if let Some(error) = self.error {
            return Err(error);
        }
        let (sges, bytes) = (self.sges.as_mut_ptr(), self.inline.as_mut_ptr());
        let mut next = core::ptr::null_mut();
        for built in self.requests.iter_mut().rev() {
            let at = match built.data {
                None => None,
                Some(BatchedData::Listed { first }) => Some(first),
                Some(BatchedData::Inline { first, sge }) => {
                    let from = bytes.wrapping_add(first).expose_provenance();
                    // SAFETY: the piece that `set_inline` pushed.
                    unsafe { (*sges.add(sge)).addr = from as u64 };
                    Some(sge)
                }
            };
            built.wr.sg_list = at.map_or(core::ptr::null_mut(), |at| sges.wrapping_add(at));
            built.wr.next = next;
            next = &raw mut built.wr;
        }
        Ok(next)
    }
}
