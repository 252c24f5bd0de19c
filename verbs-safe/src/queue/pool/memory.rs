//! The registered memory of a pool: slots, and the data that the device writes to them.

use std::ptr::NonNull;

use verbs_sys::{ibv_access_flags, ibv_sge};

use crate::error::RegisterError;
use crate::object::context::ProtectionDomain;
use crate::object::grh::GRH_BYTES;
use crate::region::memory::Mapping;
use crate::region::registration::Registration;
use crate::transport::Transport;

/// Slots begin at multiples of this: no two share a cache line.
const SLOT_ALIGN: usize = 64;

/// Slots of a pool: their number is the low half of a work request id, and fits
/// into a signed 32-bit count of work requests.
const MAX_SLOTS: u64 = 1 << 24;

/// A slot's length has to fit into a scatter/gather entry; no device has longer
/// messages than 2 GiB.
const MAX_SLOT_BYTES: u64 = 1 << 31;

/// Bytes that the device puts in front of each message. They depend on the queue pair that takes
/// the buffer, so that each pool is for queue pairs of one kind only.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Front {
    Nothing,
    /// The route header of a datagram.
    RouteHeader,
}

impl Front {
    pub(crate) fn for_transport(transport: Transport) -> Front {
        if transport.is_datagram() { Front::RouteHeader } else { Front::Nothing }
    }

    pub(super) fn bytes(self) -> usize {
        match self {
            Front::Nothing => 0,
            Front::RouteHeader => GRH_BYTES,
        }
    }

    /// The room for it in a slot, such that the message behind it is aligned.
    fn room(self) -> usize {
        self.bytes().next_multiple_of(SLOT_ALIGN)
    }
}

/// The registered memory of a pool. A queue with receives posted in it holds it.
///
/// ```text
/// a slot:  | unused | what stands in front | message, slot_bytes | unused |
///          0                             room, a multiple of 64           stride
/// ```
pub(crate) struct PoolMemory {
    /// No peer can reach it: only work posted here writes to it.
    region: Registration,
    slots: u32,
    slot_bytes: u32,
    stride: usize,
    front: Front,
}

/// A parameter over its limit: its name, its value, the limit.
pub(crate) type Excess = (&'static str, u64, u64);

impl PoolMemory {
    pub(crate) fn check(slots: u32, slot_bytes: usize) -> Result<(), Excess> {
        within("the number of slots", slots.into(), MAX_SLOTS)?;
        within("the size of a slot", slot_bytes as u64, MAX_SLOT_BYTES)
    }

    /// The parameters have been checked.
    pub(crate) fn new(
        pd: &ProtectionDomain,
        slots: u32,
        slot_bytes: usize,
        front: Front,
    ) -> Result<PoolMemory, RegisterError> {
        let stride = front.room() + slot_bytes.next_multiple_of(SLOT_ALIGN);
        // At least one page.
        let mapping = Mapping::new(stride.saturating_mul(slots as usize))?;
        let access = ibv_access_flags::IBV_ACCESS_LOCAL_WRITE;
        let region = Registration::new(pd, mapping.into(), access)?;
        Ok(PoolMemory { region, slots, slot_bytes: slot_bytes as u32, stride, front })
    }

    pub(crate) fn slots(&self) -> u32 {
        self.slots
    }

    /// The bytes of a message that fit into each slot.
    pub(crate) fn slot_bytes(&self) -> u32 {
        self.slot_bytes
    }

    /// Returns the kind of bytes in front of each message.
    pub(crate) fn front(&self) -> Front {
        self.front
    }

    /// Returns the address of a slot's message; the slot is inside.
    #[inline]
    pub(crate) fn slot(&self, slot: u32) -> NonNull<u8> {
        debug_assert!(slot < self.slots);
        // SAFETY: `slot < self.slots`, so it lies inside the region.
        unsafe { self.layout().0.add(slot as usize * self.stride) }
    }

    /// Returns the address of the first slot's message, and the distance from each to the next.
    pub(crate) fn layout(&self) -> (NonNull<u8>, usize) {
        // SAFETY: the room lies inside the first slot; without slots the region is a
        // page, which is longer.
        (unsafe { self.region.base().add(self.front.room()) }, self.stride)
    }

    pub(crate) fn lkey(&self) -> u32 {
        self.region.lkey()
    }

    /// The scatter/gather entry of a slot.
    #[inline]
    pub(crate) fn sge(&self, slot: u32, len: u32) -> ibv_sge {
        let addr = self.slot(slot).as_ptr() as u64;
        ibv_sge { addr, length: len, lkey: self.region.lkey() }
    }

    /// The scatter/gather entry of a receive: the header in front, and a whole message.
    pub(crate) fn recv_sge(&self, slot: u32) -> ibv_sge {
        let front = self.front.bytes() as u32;
        let entry = self.sge(slot, self.slot_bytes + front);
        ibv_sge { addr: entry.addr - u64::from(front), ..entry }
    }
}

pub(crate) fn within(what: &'static str, value: u64, max: u64) -> Result<(), Excess> {
    if value > max { Err((what, value, max)) } else { Ok(()) }
}
