//! Every machine with storage takes that of heapless, and is as large as its length, not its
//! capacity.

use core::num::NonZeroU32;

use super::{filled, heapless};
use crate::direct_read::{AckMode, ReadSlot, Reads, ReadsConfig, ReadsConfigError};
use crate::direct_write::{BufferReceiver, Detection, Layout};
use crate::leader::{Followers, Interest, Seat};
use crate::loan::{Lender, LenderSlot};
use crate::pool::{BufferPool, PoolConfig, PoolSlot};
use crate::push_inhibitor::{PushCounter, PushInhibitor, PushRule};
use crate::repost::{RepostQueue, RepostWord, words_for};
use crate::shared_write::{self, ExtentReceiver, ExtentSlot, LinkSlot};
use crate::wr::{SendTracker, SendTrackerConfig};

/// More than any machine here uses.
const N: usize = 16;

#[test]
fn storage_has_so_many_new_slots_or_is_refused() {
    for len in 0..=N {
        let storage = filled::<PoolSlot, N>(len).expect("there is room");
        assert_eq!((storage.len(), storage.capacity()), (len, N));
        assert!(storage.iter().all(|slot| *slot == PoolSlot::new()));
    }
    assert!(filled::<PoolSlot, N>(N + 1).is_err());
}

#[test]
fn machines_of_one_thread_are_as_large_as_their_storage() {
    let config = PoolConfig { repost_batch: 1 };
    let mut pool = BufferPool::new(filled::<PoolSlot, N>(5).unwrap(), config).unwrap();
    assert_eq!(pool.take_repost(&mut [0; N]), 5);

    let lender = Lender::new(filled::<LenderSlot, N>(2).unwrap(), 40).unwrap();
    assert_eq!(lender.lendable(), Lender::new([LenderSlot::new(); 2], 40).unwrap().lendable());

    let config = ReadsConfig { window: 8, ack: AckMode::Send, reads: 2, max_read: 16, gather: 4 };
    assert!(Reads::new(config, filled::<ReadSlot, N>(8).unwrap()).is_ok());
    let small = Reads::new(config, filled::<ReadSlot, N>(7).unwrap());
    assert_eq!(small.map(drop), Err(ReadsConfigError::StorageTooSmall));

    let layout = Layout::new(4, 100).unwrap();
    let receiver =
        |len| BufferReceiver::new(layout, 6, Detection::Trailer, filled::<u32, N>(len).unwrap());
    assert!(receiver(4).is_some() && receiver(5).is_none());

    let layout = shared_write::Layout::new(3, 512, 100, 1).unwrap();
    let links = || filled::<LinkSlot, N>(1).unwrap();
    assert!(ExtentReceiver::new(layout, filled::<ExtentSlot, N>(3).unwrap(), links()).is_some());
    assert!(ExtentReceiver::new(layout, filled::<ExtentSlot, N>(4).unwrap(), links()).is_none());

    let mut followers = Followers::new(filled::<Seat, N>(1).unwrap());
    assert!(followers.join(Interest::Any).is_some() && followers.join(Interest::Any).is_none());

    let config = SendTrackerConfig { depth: 100, control_slots: 2, signal_every: 3 };
    assert!(SendTracker::with_storage(config, filled::<u64, N>(2).unwrap()).is_ok());
    assert!(SendTracker::with_storage(config, filled::<u64, N>(1).unwrap()).is_err());

    let rule = PushRule { every: NonZeroU32::MIN, deadline_ns: 1 };
    let counters = PushInhibitor::new(rule, filled::<PushCounter, N>(3).unwrap());
    assert_eq!(counters.counters().len(), 3);
}

#[test]
fn a_view_is_storage_without_a_capacity_in_its_type() {
    let mut storage = filled::<PoolSlot, N>(5).unwrap();
    let view: &mut heapless::VecView<PoolSlot> = &mut storage;
    let pool = BufferPool::new(view, PoolConfig { repost_batch: 1 }).unwrap();
    assert_eq!(pool.waiting(), 5);
}

#[test]
fn machines_of_threads_are_as_large_as_their_storage() {
    let queue = |len| RepostQueue::new(filled::<RepostWord, N>(len).unwrap(), 100);
    assert!(queue(words_for(100)).is_ok() && queue(words_for(100) - 1).is_err());
}

#[cfg(all(target_has_atomic = "64", not(rdma_conn_no_atomic64)))]
#[test]
fn frees_and_shared_ends_are_as_large_as_their_storage() {
    use crate::ring::Geometry;
    use crate::ring::free::{FreeList, RecordSlot};
    use crate::ring::shared::{Receivers, Senders};

    let slots = |len| filled::<RecordSlot, N>(len).unwrap();
    assert_eq!(FreeList::new(slots(8)).unwrap().slots(), 8);
    assert!(FreeList::new(slots(7)).is_err());
    let geometry = Geometry::mirrored(256, 100).unwrap();
    assert!(Senders::new(geometry, slots(8)).is_ok() && Senders::new(geometry, slots(7)).is_err());
    assert!(Receivers::new(geometry, slots(8)).is_ok());
}
