//! The places of a send queue: requests as the device sees them.

use std::mem::offset_of;

use verbs_sys::{ibv_send_wr, ibv_sge};

use crate::alloc;
use crate::error::MapError;
use crate::raw_array::RawArray;

/// A request, and its one scatter/gather entry. The fields that a SEND needs are on one cache line.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
pub(super) struct RequestPlace {
    /// Count of all slots that had been staged, its request's included.
    pub(super) slots_after: u64,
    pub(super) entry: ibv_sge,
    pub(super) work: ibv_send_wr,
}

impl RequestPlace {
    /// The place that a request is in.
    #[inline]
    pub(super) fn containing(work: *const ibv_send_wr) -> *mut RequestPlace {
        work.cast_mut().wrapping_byte_sub(offset_of!(RequestPlace, work)).cast()
    }
}

/// A power of two of places. Each request links to the next, and the last to the first.
pub(super) fn circle(places: usize) -> Result<RawArray<RequestPlace>, MapError> {
    let (entry, work) = (ibv_sge::default(), ibv_send_wr::default());
    let place = || RequestPlace { slots_after: 0, entry, work };
    let circle = RawArray::new(alloc::filled("allocating a send queue", places, place)?);
    for place in 0..places {
        let (this, next) = (circle.at(place), circle.at((place + 1) % places));
        // SAFETY: both elements are inside, and nothing else accesses them.
        unsafe {
            (*this).work.sg_list = &raw mut (*this).entry;
            (*this).work.next = &raw mut (*next).work;
        }
    }
    Ok(circle)
}
