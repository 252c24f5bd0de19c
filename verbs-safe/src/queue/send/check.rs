//! Checks of a request before it is staged.

use crate::error::StageError;
use crate::queue::send::SendQueue;
use crate::queue::send::op::SendOp;
use crate::transport::OpSet;

impl SendQueue {
    /// Checks that a request with its bytes in the next slot can be staged.
    #[inline]
    pub(super) fn check(&self, op: &SendOp, len: u32) -> Result<(), StageError> {
        self.check_offered(op)?;
        self.check_room()?;
        self.check_slot(len)?;
        check_remote(op, len)
    }

    #[inline]
    pub(super) fn check_offered(&self, op: &SendOp) -> Result<(), StageError> {
        if self.to_its_peer.has(op.opcode()) {
            return Ok(());
        }
        let datagram = self.max_datagram > 0 && OpSet::sends().has(op.opcode());
        Err(if datagram { StageError::NoPeer } else { StageError::NotOffered })
    }

    #[inline]
    pub(super) fn check_room(&self) -> Result<(), StageError> {
        if self.staged - self.retired >= u64::from(self.depth) {
            return Err(StageError::QueueFull);
        }
        Ok(())
    }

    #[inline]
    pub(super) fn check_slot(&self, len: u32) -> Result<(), StageError> {
        if len > 0 {
            let (len, slot_bytes) = (len as usize, self.slot_bytes());
            if len > slot_bytes {
                return Err(StageError::TooLong { len, slot_bytes });
            }
            if !self.has_slot() {
                return Err(StageError::NoSlot);
            }
        }
        Ok(())
    }

    #[inline]
    pub(super) fn has_slot(&self) -> bool {
        self.slots_staged - self.slots_retired < u64::from(self.slots)
    }
}

#[inline]
pub(super) fn check_remote(op: &SendOp, len: u32) -> Result<(), StageError> {
    match op.remote() {
        Some(remote) if u64::from(len) > remote.len => {
            let (len, remote_len) = (len as usize, remote.len);
            Err(StageError::RemoteTooShort { len, remote_len })
        }
        _ => Ok(()),
    }
}
