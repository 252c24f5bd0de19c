//! Protection domains and memory regions.
//!
//! A key is the index of a table slot (18 bits) and a variable part (14 bits)
//! drawn from a keyed hash whose key is the process's own: a key that is no
//! longer valid, or was made up, meets another variable part. Slots are reused in
//! the order in which they were freed, as late as possible.
//!
//! Checks take no lock. They happen during an execution, that is, under the lock
//! of some send queue: deregistration first makes the key invalid and then waits
//! for every send queue once ([`Device::quiesce`]). Who saw the valid key has
//! finished by then; who comes later sees it invalid. Only after that may the slot
//! be filled again, so that a reader that saw its key may read the rest.
//!
//! [`Device::quiesce`]: crate::device::Device::quiesce

use core::ffi::{c_int, c_void};
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::collections::VecDeque;
use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use verbs_sys::*;

use crate::context::{Context, InArc};
use crate::device::admit;
use crate::errno;
use crate::limits;
use crate::process::{Neighbours, Told};

const INDEX_BITS: u32 = limits::MAX_MR.trailing_zeros();
const CHUNK: usize = 1_024;
const CHUNKS: usize = limits::MAX_MR / CHUNK;

/// Access bits with a meaning here; `LOCAL_WRITE` and the three remote ones.
pub(crate) const LOCAL_WRITE: u32 = ibv_access_flags::IBV_ACCESS_LOCAL_WRITE.0;
pub(crate) const REMOTE_WRITE: u32 = ibv_access_flags::IBV_ACCESS_REMOTE_WRITE.0;
pub(crate) const REMOTE_READ: u32 = ibv_access_flags::IBV_ACCESS_REMOTE_READ.0;
pub(crate) const REMOTE_ATOMIC: u32 = ibv_access_flags::IBV_ACCESS_REMOTE_ATOMIC.0;
/// Memory that may have gone when it is accessed. Whoever does not say that he knows does
/// not get at it.
pub(crate) const ON_DEMAND: u32 = ibv_access_flags::IBV_ACCESS_ON_DEMAND.0;
const ZERO_BASED: u32 = ibv_access_flags::IBV_ACCESS_ZERO_BASED.0;
/// A hint about pages; nothing depends on it here.
const HUGETLB: u32 = ibv_access_flags::IBV_ACCESS_HUGETLB.0;

/// A protection domain.
#[repr(C)]
pub(crate) struct Pd {
    abi: ibv_pd,
    pub(crate) context: Arc<Context>,
    /// Names it in the tables of the data path; never 0, never reused soon.
    pub(crate) id: u32,
    /// Regions, queue pairs and shared receive queues in it.
    pub(crate) users: AtomicUsize,
}

// SAFETY: the ABI's struct is only read once it is shared.
unsafe impl Send for Pd {}
// SAFETY: as above.
unsafe impl Sync for Pd {}

/// One registration, as the data path sees it. `key` 0 is "nothing here".
#[derive(Debug, Default)]
#[repr(align(64))]
struct Slot {
    key: AtomicU32,
    pd: AtomicU32,
    access: AtomicU32,
    /// First address as work requests name it, and the length in bytes.
    iova: AtomicU64,
    length: AtomicU64,
    /// What is added to such an address to get one of this process.
    delta: AtomicU64,
    /// The key that was valid before `key`.
    previous: AtomicU32,
}

impl Slot {
    /// The region, as other processes are told of it.
    fn told(&self) -> Told {
        let iova = self.iova.load(Ordering::Relaxed);
        Told {
            version: 0,
            pd: self.pd.load(Ordering::Relaxed),
            access: self.access.load(Ordering::Relaxed),
            iova,
            length: self.length.load(Ordering::Relaxed),
            addr: iova.wrapping_add(self.delta.load(Ordering::Relaxed)),
            file: None,
        }
    }
}

/// A region that may be accessed; the default covers nothing.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct View {
    iova: u64,
    length: u64,
    delta: u64,
}

impl View {
    /// The address in this process of `addr .. addr + len`, if the region covers
    /// them.
    #[inline(always)]
    pub(crate) fn at(&self, addr: u64, len: u64) -> Option<*mut u8> {
        let offset = addr.wrapping_sub(self.iova);
        // Exposed: the region was registered by address.
        (offset <= self.length && len <= self.length - offset)
            .then(|| core::ptr::with_exposed_provenance_mut(addr.wrapping_add(self.delta) as usize))
    }
}

/// Regions by key.
pub(crate) struct MrTable {
    chunks: [OnceLock<Box<[Slot]>>; CHUNKS],
    free: Mutex<FreeSlots>,
    /// Other processes are told of regions; only changed under the lock of `free`.
    is_told: AtomicBool,
    random: RandomState,
}

#[derive(Debug, Default)]
struct FreeSlots {
    freed: VecDeque<u32>,
    never_used: u32,
    drawn: u64,
}

impl Default for MrTable {
    fn default() -> Self {
        MrTable {
            chunks: [const { OnceLock::new() }; CHUNKS],
            free: Mutex::default(),
            is_told: AtomicBool::new(false),
            random: RandomState::new(),
        }
    }
}

impl MrTable {
    #[inline]
    fn slot(&self, key: u32) -> Option<&Slot> {
        let index = key as usize & (limits::MAX_MR - 1);
        Some(&self.chunks[index / CHUNK].get()?[index % CHUNK])
    }

    /// The address in this process of `addr .. addr + len` of the region with
    /// this key, if it is in the domain, has all of `access` and covers them.
    /// Called only under the lock of a send queue.
    #[inline]
    pub(crate) fn check(
        &self,
        key: u32,
        pd: u32,
        addr: u64,
        len: u64,
        access: u32,
    ) -> Option<*mut u8> {
        self.view(key, pd, access)?.at(addr, len)
    }

    /// The region with this key, if it is in the domain and has all of `access`; one that
    /// is on demand only for who asks for [`ON_DEMAND`]. It is good as long as the lock of the send queue is held.
    #[inline]
    pub(crate) fn view(&self, key: u32, pd: u32, access: u32) -> Option<View> {
        let slot = self.slot(key)?;
        // Acquire: the other fields were written before the key. They do not
        // change while we hold a send queue (see the module).
        if slot.key.load(Ordering::Acquire) != key || key == 0 {
            return None;
        }
        let allowed = slot.access.load(Ordering::Relaxed) & (access | ON_DEMAND) == access;
        let ours = slot.pd.load(Ordering::Relaxed) == pd;
        (allowed && ours).then(|| View {
            iova: slot.iova.load(Ordering::Relaxed),
            length: slot.length.load(Ordering::Relaxed),
            delta: slot.delta.load(Ordering::Relaxed),
        })
    }

    /// Takes a slot and fills it; the key is valid from then on.
    fn insert(&self, region: &Region, neighbours: Option<&Neighbours>) -> Result<u32, c_int> {
        let mut free = self.free.lock();
        let index = match free.freed.pop_front() {
            Some(index) => index,
            None if (free.never_used as usize) < limits::MAX_MR => {
                free.never_used += 1;
                free.never_used - 1
            }
            None => return Err(errno::ENOMEM),
        };
        let chunk = self.chunks[index as usize / CHUNK]
            .get_or_init(|| (0..CHUNK).map(|_| Slot::default()).collect());
        let slot = &chunk[index as usize % CHUNK];
        slot.pd.store(region.pd, Ordering::Relaxed);
        slot.access.store(region.access, Ordering::Relaxed);
        slot.iova.store(region.iova, Ordering::Relaxed);
        slot.length.store(region.length, Ordering::Relaxed);
        slot.delta.store(region.addr.wrapping_sub(region.iova), Ordering::Relaxed);
        let key = self.draw(&mut free, index);
        // Release: whoever sees the key sees the fields.
        slot.key.store(key, Ordering::Release);
        if let Some(neighbours) = neighbours.filter(|_| self.is_told.load(Ordering::Relaxed)) {
            neighbours.tell_region(key, &slot.told());
        }
        Ok(key)
    }

    /// Tells other processes of all regions, and from now on of every new one.
    pub(crate) fn tell_all(&self, neighbours: &Neighbours) {
        let free = self.free.lock();
        // Relaxed: it is only changed under the lock.
        if self.is_told.swap(true, Ordering::Relaxed) {
            return;
        }
        for index in 0..free.never_used {
            let Some(slot) = self.slot(index) else { return };
            let key = slot.key.load(Ordering::Acquire);
            if key != 0 {
                neighbours.tell_region(key, &slot.told());
            }
        }
    }

    /// A key for the slot: not 0, and not the one it had before.
    fn draw(&self, free: &mut FreeSlots, index: u32) -> u32 {
        loop {
            free.drawn += 1;
            let variable = self.random.hash_one(free.drawn) as u32;
            let key = variable << INDEX_BITS | index;
            let previous = self.slot(index).map_or(0, |s| s.previous.load(Ordering::Relaxed));
            if key != 0 && key != previous {
                return key;
            }
        }
    }

    /// Makes a key invalid. The slot stays taken until [`release`](Self::release).
    fn invalidate(&self, key: u32, neighbours: Option<&Neighbours>) {
        let _free = self.free.lock();
        if let Some(neighbours) = neighbours.filter(|_| self.is_told.load(Ordering::Relaxed)) {
            neighbours.untell_region(key);
        }
        if let Some(slot) = self.slot(key) {
            slot.previous.store(key, Ordering::Relaxed);
            // Release: pairs with the locks that `quiesce` takes afterwards.
            slot.key.store(0, Ordering::Release);
        }
    }

    /// Gives the slot of an invalid key back, once nobody looks at it any more.
    fn release(&self, key: u32) {
        self.free.lock().freed.push_back(key & (limits::MAX_MR as u32 - 1));
    }
}

/// What is to be registered.
struct Region {
    pd: u32,
    addr: u64,
    iova: u64,
    length: u64,
    access: u32,
}

/// A memory region.
#[repr(C)]
struct Mr {
    abi: ibv_mr,
    pd: Arc<Pd>,
}

impl Pd {
    /// The object behind a caller's pointer.
    ///
    /// # Safety
    /// `pd` is NULL or a live protection domain of ours.
    pub(crate) unsafe fn from_abi<'a>(pd: *mut ibv_pd) -> Result<InArc<'a, Pd>, c_int> {
        // SAFETY: the caller's promise; every domain lives in an Arc.
        unsafe { InArc::new(pd.cast::<Pd>()) }.ok_or(errno::EINVAL)
    }
}

pub(crate) unsafe extern "C" fn alloc_pd(context: *mut ibv_context) -> *mut ibv_pd {
    static NEXT_ID: AtomicU32 = AtomicU32::new(1);
    // SAFETY: NULL, or a context of ours.
    errno::pointer(unsafe { Context::from_abi(context) }.and_then(|context| {
        admit(&context.device.population.pds, limits::MAX_PD)?;
        context.users.fetch_add(1, Ordering::Relaxed);
        let id = NEXT_ID.fetch_add(1, Ordering::Relaxed).max(1);
        let context = context.keep();
        let abi = ibv_pd { context: context.as_abi(), handle: id };
        let pd = Arc::new(Pd { abi, context, id, users: AtomicUsize::new(0) });
        Ok(Arc::into_raw(pd).cast_mut().cast())
    }))
}

pub(crate) unsafe extern "C" fn dealloc_pd(pd: *mut ibv_pd) -> c_int {
    // SAFETY: NULL, or a domain that the caller gives back.
    errno::code(unsafe { Pd::from_abi(pd) }.and_then(|object| {
        if object.users.load(Ordering::Acquire) != 0 {
            return Err(errno::EBUSY);
        }
        object.context.device.population.pds.fetch_sub(1, Ordering::Relaxed);
        object.context.users.fetch_sub(1, Ordering::Release);
        // SAFETY: takes back the reference of `alloc_pd`.
        unsafe { Arc::decrement_strong_count(pd.cast::<Pd>()) };
        Ok(())
    }))
}

pub(crate) unsafe extern "C" fn reg_mr(
    pd: *mut ibv_pd,
    addr: *mut c_void,
    length: usize,
    access: c_int,
) -> *mut ibv_mr {
    let access = access as u32;
    let iova = if access & ZERO_BASED != 0 { 0 } else { addr as u64 };
    // SAFETY: the caller's promises.
    unsafe { reg_mr_iova2(pd, addr, length, iova, access) }
}

pub(crate) unsafe extern "C" fn reg_mr_iova2(
    pd: *mut ibv_pd,
    addr: *mut c_void,
    length: usize,
    iova: u64,
    access: u32,
) -> *mut ibv_mr {
    // SAFETY: NULL, or a domain of ours.
    errno::pointer(unsafe { Pd::from_abi(pd) }.and_then(|pd| {
        let access = validate(addr, length, iova, access)?;
        let region = Region {
            pd: pd.id,
            addr: addr.expose_provenance() as u64,
            iova,
            length: length as u64,
            access,
        };
        let device = &pd.context.device;
        let key = device.mrs.insert(&region, device.neighbours.as_ref())?;
        pd.users.fetch_add(1, Ordering::Relaxed);
        let pd = pd.keep();
        let abi = ibv_mr {
            context: pd.context.as_abi(),
            pd: Arc::as_ptr(&pd).cast_mut().cast(),
            addr,
            length,
            handle: key,
            lkey: key,
            rkey: key,
        };
        Ok(Box::into_raw(Box::new(Mr { abi, pd })).cast())
    }))
}

/// The access bits that count, or why the region cannot be registered: `EINVAL`
/// for bits that do not go together, `EOPNOTSUPP` for on-demand paging of anything but
/// memory that READs land in, `EFAULT` for addresses without memory.
fn validate(addr: *mut c_void, length: usize, iova: u64, access: u32) -> Result<u32, c_int> {
    const REMOTE: u32 = REMOTE_WRITE | REMOTE_READ | REMOTE_ATOMIC;
    const KNOWN: u32 = LOCAL_WRITE | REMOTE | ZERO_BASED | HUGETLB | ON_DEMAND;
    let access = access & !ACCESS_OPTIONAL_RANGE;
    let is_for_reads = access & (LOCAL_WRITE | REMOTE) == LOCAL_WRITE;
    if access & ON_DEMAND != 0 && !(is_for_reads && crate::memory::can_land()) {
        return Err(errno::EOPNOTSUPP);
    }
    let remote_writes = access & (REMOTE_WRITE | REMOTE_ATOMIC) != 0;
    if access & !KNOWN != 0 || (remote_writes && access & LOCAL_WRITE == 0) {
        return Err(errno::EINVAL);
    }
    let end = (addr as u64).checked_add(length as u64);
    if length == 0 || end.is_none() || iova.checked_add(length as u64).is_none() {
        return Err(errno::EINVAL);
    }
    is_mapped(addr, length).then_some(access).ok_or(errno::EFAULT)
}

/// Whether every page has memory behind it. A card finds out when it pins them;
/// an asynchronous msync does nothing but walk the mappings.
fn is_mapped(addr: *mut c_void, length: usize) -> bool {
    let page = rustix::param::page_size();
    let within = addr as usize % page;
    // SAFETY: the call neither reads nor writes memory of ours.
    unsafe {
        rustix::mm::msync(addr.byte_sub(within), length + within, rustix::mm::MsyncFlags::ASYNC)
    }
    .is_ok()
}

pub(crate) unsafe extern "C" fn dereg_mr(mr: *mut ibv_mr) -> c_int {
    if mr.is_null() {
        return errno::EINVAL;
    }
    // SAFETY: a region of ours that the caller gives back.
    let object = unsafe { &*mr.cast::<Mr>() };
    let device = &object.pd.context.device;
    let neighbours = device.neighbours.as_ref();
    device.mrs.invalidate(object.abi.lkey, neighbours);
    device.quiesce();
    // A process that was stopped in the middle of an access keeps the memory.
    if let Some(Err(error)) = neighbours.map(Neighbours::wait_outside) {
        return error;
    }
    device.mrs.release(object.abi.lkey);
    object.pd.users.fetch_sub(1, Ordering::Release);
    // SAFETY: it was made by `reg_mr_iova2`, and nobody uses it any more.
    drop(unsafe { Box::from_raw(mr.cast::<Mr>()) });
    0
}
