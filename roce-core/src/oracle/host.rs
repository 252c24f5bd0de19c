//! The responder's memory and receive requests.

use std::collections::VecDeque;
use std::{vec, vec::Vec};

use super::{MAX_LENGTH, MEMORY};
use crate::responder::{Access, AccessError, AtomicOp, ReceiveDone, ReceiveFault, Refusal, Target};

/// The address of the memory: its end is the end of all addresses but a few.
pub(crate) const BASE: u64 = u64::MAX - 2 * MEMORY as u64 - 7;
/// Its key.
pub(crate) const RKEY: u32 = 0x1234_5678;
/// The keys that the peer may invalidate are those from here on.
pub(crate) const INVALIDATED: u32 = 0x4000_0000;

#[derive(Clone, Debug)]
pub(crate) struct Host {
    pub(crate) memory: Vec<u8>,
    /// Receive requests that are posted.
    pub(crate) receives: u32,
    /// The one that was taken, and what is in it.
    pub(crate) taken: Option<Vec<u8>>,
    /// Number of the next accesses that meet memory that is not there.
    pub(crate) absent: u32,
    /// Those that completed, with their bytes.
    pub(crate) done: VecDeque<(ReceiveDone, Vec<u8>)>,
    /// Those that failed.
    pub(crate) faults: u32,
    /// Payload of the next response.
    pub(crate) payload: Vec<u8>,
    /// Bytes that WRITEs and SENDs have stored, and how often atomics were executed.
    pub(crate) stored: u64,
    pub(crate) atomics: u64,
    /// The key is valid.
    pub(crate) is_valid: bool,
    /// A receive request whose message was dropped serves the next one.
    pub(crate) is_unreliable: bool,
}

impl Host {
    pub(crate) fn new() -> Self {
        Self {
            memory: vec![0; MEMORY],
            receives: 0,
            taken: None,
            absent: 0,
            done: VecDeque::new(),
            faults: 0,
            payload: Vec::new(),
            stored: 0,
            atomics: 0,
            is_valid: true,
            is_unreliable: false,
        }
    }

    /// Checks that memory is there: not for the next `absent` accesses, if a test says so.
    fn meet(&mut self) -> Result<(), AccessError> {
        let Some(left) = self.absent.checked_sub(1) else { return Ok(()) };
        self.absent = left;
        Err(AccessError::NotPresent)
    }

    fn range(&self, rkey: u32, va: u64, length: u32) -> Result<core::ops::Range<usize>, Refusal> {
        let offset = va.wrapping_sub(BASE);
        let end = offset.checked_add(length.into()).ok_or(Refusal::Access)?;
        if rkey != RKEY || !self.is_valid || end > MEMORY as u64 {
            return Err(Refusal::Access);
        }
        Ok(offset as usize..end as usize)
    }
}

impl Target for Host {
    fn take_receive(&mut self) -> Option<u32> {
        assert_eq!(self.taken, None, "a second receive request was taken");
        self.receives = self.receives.checked_sub(1)?;
        self.taken = Some(Vec::new());
        Some(MAX_LENGTH)
    }

    fn place(&mut self, offset: u32, payload: &[u8]) -> Result<(), AccessError> {
        self.meet()?;
        let taken = self.taken.as_mut().expect("a receive request was taken");
        if offset == 0 && self.is_unreliable {
            taken.clear();
        }
        assert_eq!(offset as usize, taken.len(), "bytes of a SEND are in order, and once");
        taken.extend_from_slice(payload);
        assert!(taken.len() <= MAX_LENGTH as usize, "more than the receive request has room for");
        self.stored += payload.len() as u64;
        Ok(())
    }

    fn complete_receive(&mut self, done: ReceiveDone) {
        let bytes = self.taken.take().expect("a receive request was taken");
        self.done.push_back((done, bytes));
    }

    fn fail_receive(&mut self, _: ReceiveFault) {
        self.taken.take().expect("a receive request was taken");
        self.faults += 1;
    }

    fn check(&mut self, _: Access, rkey: u32, va: u64, length: u32) -> Result<(), AccessError> {
        assert!(length > 0, "no bytes need no key");
        self.range(rkey, va, length)?;
        self.meet()
    }

    fn write(&mut self, rkey: u32, va: u64, payload: &[u8]) -> Result<(), AccessError> {
        let range = self.range(rkey, va, payload.len() as u32)?;
        self.meet()?;
        self.memory[range].copy_from_slice(payload);
        self.stored += payload.len() as u64;
        Ok(())
    }

    fn read(&mut self, rkey: u32, va: u64, length: u32) -> Result<(), AccessError> {
        let range = self.range(rkey, va, length)?;
        self.meet()?;
        self.payload = self.memory[range].to_vec();
        Ok(())
    }

    fn atomic(&mut self, rkey: u32, va: u64, op: AtomicOp) -> Result<u64, AccessError> {
        let range = self.range(rkey, va, 8)?;
        let word = &mut self.memory[range];
        let before = u64::from_le_bytes((&*word).try_into().expect("eight bytes"));
        let after = match op {
            AtomicOp::CmpSwap { compare, swap } if compare == before => swap,
            AtomicOp::CmpSwap { .. } => before,
            AtomicOp::FetchAdd { add } => before.wrapping_add(add),
        };
        word.copy_from_slice(&after.to_le_bytes());
        self.atomics += 1;
        Ok(before)
    }

    fn atomic_write(&mut self, rkey: u32, va: u64, bytes: [u8; 8]) -> Result<(), AccessError> {
        assert!(va.is_multiple_of(8), "an ATOMIC WRITE is of a word");
        self.write(rkey, va, &bytes)
    }

    fn invalidate(&mut self, rkey: u32) -> Result<(), Refusal> {
        if rkey >= INVALIDATED { Ok(()) } else { Err(Refusal::Access) }
    }
}
