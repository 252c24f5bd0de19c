//! Protection domains and memory regions.

use core::ffi::{c_int, c_void};
use core::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::Arc;

use verbs_sys::*;

use crate::objects::device::admit;
use crate::objects::in_arc::InArc;
use crate::objects::mr_table::{
    CHUNK, LOCAL_WRITE, MrTable, ON_DEMAND, REMOTE_ATOMIC, REMOTE_READ, REMOTE_WRITE, Slot,
};
use crate::objects::state::{Context, Pd, PeerProcesses};
use crate::{errno, limits};

const ZERO_BASED: u32 = ibv_access_flags::IBV_ACCESS_ZERO_BASED.0;
/// A hint about pages; nothing depends on it here.
const HUGETLB: u32 = ibv_access_flags::IBV_ACCESS_HUGETLB.0;

/// What is to be registered.
struct Region {
    pd: u32,
    addr: u64,
    iova: u64,
    length: u64,
    access: u32,
}

impl MrTable {
    /// Takes a slot and fills it; the key is valid from then on.
    fn insert(&self, region: &Region, peers: Option<&PeerProcesses>) -> Result<u32, c_int> {
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
        // Release: a thread that sees the key sees the fields.
        slot.key.store(key, Ordering::Release);
        if let Some(peers) = peers.filter(|_| self.is_published.load(Ordering::Relaxed)) {
            peers.publish_region(key, &slot.published());
        }
        Ok(key)
    }

    /// Tells other processes of all regions, and from now on of every new one.
    pub(crate) fn publish_all(&self, peers: &PeerProcesses) {
        let free = self.free.lock();
        // Relaxed: it is only changed under the lock.
        if self.is_published.swap(true, Ordering::Relaxed) {
            return;
        }
        for index in 0..free.never_used {
            let Some(slot) = self.slot(index) else { return };
            let key = slot.key.load(Ordering::Acquire);
            if key != 0 {
                peers.publish_region(key, &slot.published());
            }
        }
    }

    /// Makes a key invalid. The slot stays taken until [`release`](Self::release).
    fn invalidate(&self, key: u32, peers: Option<&PeerProcesses>) {
        let _free = self.free.lock();
        if let Some(peers) = peers.filter(|_| self.is_published.load(Ordering::Relaxed)) {
            peers.withdraw_region(key);
        }
        if let Some(slot) = self.slot(key) {
            slot.previous.store(key, Ordering::Relaxed);
            // Release: pairs with the locks that `quiesce` takes afterwards.
            slot.key.store(0, Ordering::Release);
        }
    }
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
        let key = device.mrs.insert(&region, device.peers.as_ref())?;
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
    if access & ON_DEMAND != 0 && !(is_for_reads && crate::objects::memory::can_land()) {
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
    let peers = device.peers.as_ref();
    device.mrs.invalidate(object.abi.lkey, peers);
    device.quiesce();
    // A process that was stopped in the middle of an access keeps the memory.
    if let Some(Err(error)) = peers.map(PeerProcesses::wait_outside) {
        return error;
    }
    device.mrs.release(object.abi.lkey);
    object.pd.users.fetch_sub(1, Ordering::Release);
    // SAFETY: it was made by `reg_mr_iova2`, and no thread uses it any more.
    drop(unsafe { Box::from_raw(mr.cast::<Mr>()) });
    0
}
