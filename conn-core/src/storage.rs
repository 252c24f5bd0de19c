//! Storage of machines, and the choice of its type.
//!
//! A machine that is sized by a number (buffers, slots, members) takes its memory from the caller,
//! as any type `S` with `AsRef<[T]>`, and `AsMut<[T]>` unless threads share it. The length of the
//! storage cannot change once the machine has it.
//!
//! | storage | the number is known | the memory is | for |
//! |---|---|---|---|
//! | `[T; N]` | when the program is built | in the machine | the first choice without an allocator: no lifetime, no bookkeeping, the bound is in the type |
//! | `&mut [T]`, `&'static [T]` | at run time | elsewhere: a `static`, an arena, a region that the boot loader names | memory that has a place of its own, or that threads share; one machine type for all sizes. The machine borrows it, and has its lifetime |
//! | [`heapless::Vec<T, N>`](https://docs.rs/heapless) | at run time, and is at most `N` | in the machine, all `N` of it | a number that a configuration or the peer chooses, without an allocator, in a machine that has to be moved or kept in a `static` |
//! | `&mut heapless::VecView<T>` | at run time | elsewhere | as the line above, where one compiled machine is to serve several `N` |
//! | `Box<[T]>`, `Vec<T>` | at run time | on the heap | where there is an allocator: `rdma-conn` does it so |
//!
//! Three rules help to choose. Some machines use *all* of their storage, so that its length is a
//! parameter: [`BufferPool`](crate::pool::BufferPool) has as many buffers as slots,
//! [`FreeList`](crate::ring::free::FreeList) wants a power of two,
//! [`BufferReceiver`](crate::direct_write::BufferReceiver) the buffers of its layout. With an
//! array, such a number is fixed. Second, a `heapless::Vec` with few elements takes as much
//! memory as a full one, and is copied whole when the machine is moved. Third, the queues of
//! heapless (`Deque`, `spsc::Queue`) are no slices, and no storage.
//!
//! ```
//! use conn_core::pool::{BufferPool, PoolConfig, PoolSlot};
//!
//! let config = PoolConfig { repost_batch: 2 };
//! let of_array = BufferPool::new([PoolSlot::new(); 8], config)?;
//!
//! let mut arena = [PoolSlot::new(); 64]; // `static` in a program without std
//! let (first, _rest) = arena.split_at_mut(8);
//! let of_arena = BufferPool::new(first, config)?;
//!
//! let of_heap = BufferPool::new(vec![PoolSlot::new(); 8].into_boxed_slice(), config)?;
//! assert_eq!([of_array.waiting(), of_arena.waiting(), of_heap.waiting()], [8; 3]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # The feature `heapless`
//!
//! It adds [`filled`], which makes a `heapless::Vec` of a number of new slots. (Slots that threads
//! share are not `Clone`, so `resize` cannot make them.) It re-exports its version of heapless.
#![cfg_attr(
    feature = "heapless",
    doc = r#"
```
use conn_core::ring::free::{FreeFront, FreeList, RecordSlot};
use conn_core::storage::{filled, heapless};

/// How many records the application may hold, as the configuration says: at most 64.
fn list(held: usize) -> Option<FreeList<heapless::Vec<RecordSlot, 64>>> {
    FreeList::new(filled(held.next_power_of_two()).ok()?).ok()
}

let (small, mut front) = (list(5).expect("no more than 64"), FreeFront::new());
assert_eq!(small.slots(), 8);
let lent = front.lend(&small, 16)?;
front.free(&small, lent)?;
assert!(list(65).is_none(), "refused, where a heap would grow");
# Ok::<(), Box<dyn std::error::Error>>(())
```
"#
)]
#![cfg_attr(
    not(feature = "heapless"),
    allow(rustdoc::broken_intra_doc_links, reason = "`filled` is part of the feature")
)]

#[cfg(all(test, feature = "heapless"))]
mod tests;

#[cfg(feature = "heapless")]
pub use heapless;

/// Storage of `len` new slots, at most `N`.
///
/// # Errors
/// More than `N`.
#[cfg(feature = "heapless")]
pub fn filled<T: Default, const N: usize>(
    len: usize,
) -> Result<heapless::Vec<T, N>, heapless::CapacityError> {
    let mut storage = heapless::Vec::new();
    for _ in 0..len {
        storage.push(T::default()).map_err(|_| heapless::CapacityError::default())?;
    }
    Ok(storage)
}
