//! Protection domains and memory regions.

use core::ffi::{c_int, c_void};
use core::sync::atomic::{AtomicU32, Ordering};
use std::sync::Arc;

use rustix::io::Errno;
use verbs_sys::*;

use crate::alloc;
use crate::check::checker::Object;
use crate::memory::mr_table::{
    LOCAL_WRITE, MW_BIND, MrSlot, MrTable, ON_DEMAND, REMOTE_ATOMIC, REMOTE_READ, REMOTE_WRITE,
};
use crate::memory::on_demand;
use crate::memory::published::PublishedRegion;
use crate::objects::device::admit;
use crate::objects::dm_memory::DmMemory;
use crate::objects::handles::{KeyChange, MrRegistration};
use crate::objects::in_arc::InArc;
use crate::objects::state::{Context, Device, Pd, PeerProcesses};
use crate::objects::users::NewUser;
use crate::peers::process::maps;
use crate::queues::queue_memory::{MemoryLender, Resource};
use crate::trace::layout::EventKind;
use crate::{errno, limits};

pub(crate) const ZERO_BASED: u32 = ibv_access_flags::IBV_ACCESS_ZERO_BASED.0;
/// A hint about pages; nothing depends on it here.
const HUGETLB: u32 = ibv_access_flags::IBV_ACCESS_HUGETLB.0;
const REMOTE: u32 = REMOTE_WRITE | REMOTE_READ | REMOTE_ATOMIC;
/// Access bits that a region may have.
const KNOWN: u32 = LOCAL_WRITE | REMOTE | MW_BIND | ZERO_BASED | HUGETLB | ON_DEMAND;

/// Memory that is to be registered.
#[derive(Clone, Copy)]
pub(crate) struct MrAttr {
    pub(crate) pd: u32,
    pub(crate) addr: u64,
    pub(crate) iova: u64,
    pub(crate) length: u64,
    pub(crate) access: u32,
}

impl MrAttr {
    /// The region that was published.
    pub(crate) fn from_published(published: &PublishedRegion) -> MrAttr {
        let PublishedRegion { pd, addr, iova, length, access, .. } = *published;
        MrAttr { pd, addr, iova, length, access }
    }
}

impl MrTable {
    /// Takes a slot and fills it; the key is valid from then on.
    pub(crate) fn insert(
        &self,
        owner: u32,
        region: &MrAttr,
        peers: Option<&PeerProcesses>,
    ) -> Result<u32, Errno> {
        let mut free = self.free.lock();
        let (key, slot) = self.take(&mut free)?;
        slot.owner.store(owner, Ordering::Relaxed);
        self.fill(key, slot, region, peers);
        Ok(key)
    }

    /// Fills a slot without a key, which is valid from then on. The table's lock is held.
    fn fill(&self, key: u32, slot: &MrSlot, region: &MrAttr, peers: Option<&PeerProcesses>) {
        slot.pd.store(region.pd, Ordering::Relaxed);
        slot.access.store(region.access, Ordering::Relaxed);
        slot.iova.store(region.iova, Ordering::Relaxed);
        slot.length.store(region.length, Ordering::Relaxed);
        slot.delta.store(region.addr.wrapping_sub(region.iova), Ordering::Relaxed);
        self.put(key, slot, peers);
    }

    /// Tells other processes of all regions, and from now on of every new one.
    pub(crate) fn publish_all(&self, peers: &PeerProcesses) {
        let free = self.free.lock();
        // Relaxed: it is only changed under the lock.
        if self.is_published.swap(true, Ordering::Relaxed) {
            return;
        }
        for index in 0..free.never_used {
            let Some(slot) = self.slot_at(index) else { return };
            let key = slot.key.load(Ordering::Acquire);
            if key != 0 {
                peers.publish_region(key, &slot.published());
            }
        }
    }

    /// Makes the key of a region invalid; `EBUSY`, and nothing has changed, if memory windows are
    /// bound to it. The slot stays taken until [`release`](Self::release).
    pub(crate) fn invalidate(
        &self,
        change: &KeyChange<'_>,
        peers: Option<&PeerProcesses>,
    ) -> Result<(), Errno> {
        let free = self.free.lock();
        if free.mws.are_bound_to(self.keys.index(change.key())) {
            return Err(errno::EBUSY);
        }
        self.withdraw(change.key(), peers);
        Ok(())
    }

    /// Fills the slot of a key that is [invalid](Self::invalidate): it is valid again.
    pub(crate) fn validate_again(
        &self,
        change: &KeyChange<'_>,
        slot: &MrSlot,
        region: &MrAttr,
        peers: Option<&PeerProcesses>,
    ) {
        let _table = self.free.lock();
        self.fill(change.key(), slot, region, peers);
    }

    /// Makes a key invalid. The table's lock is held.
    pub(crate) fn withdraw(&self, key: u32, peers: Option<&PeerProcesses>) {
        if let Some(peers) = peers.filter(|_| self.is_published.load(Ordering::Relaxed)) {
            peers.withdraw_region(key);
        }
        if let Some(slot) = self.slot(key) {
            // Release: pairs with the locks that `quiesce` takes afterwards.
            slot.key.store(0, Ordering::Release);
        }
    }

    /// Makes a key valid, whose slot is filled in. The table's lock is held.
    pub(crate) fn put(&self, key: u32, slot: &MrSlot, peers: Option<&PeerProcesses>) {
        // Release: a thread that sees the key sees the fields.
        slot.key.store(key, Ordering::Release);
        if let Some(peers) = peers.filter(|_| self.is_published.load(Ordering::Relaxed)) {
            peers.publish_region(key, &slot.published());
        }
    }
}

impl Context {
    /// Traces where a region is; not its keys, which permit access.
    fn trace_region(&self, event: EventKind, addr: u64, length: usize) {
        if let Some(tracer) = &self.tracer {
            tracer.log(event, (0, 0, length.try_into().unwrap_or(u32::MAX)), (0, 0), addr);
        }
    }
}

/// Struct by which a program knows a memory region.
#[repr(C)]
pub(crate) struct Mr {
    pub(crate) abi: ibv_mr,
    pub(crate) pd: Arc<Pd>,
    pub(crate) registration: Arc<MrRegistration>,
}

impl Mr {
    /// A struct of a region, at `addr`.
    pub(crate) fn from_registration(
        pd: Arc<Pd>,
        addr: *mut c_void,
        registration: Arc<MrRegistration>,
    ) -> *mut ibv_mr {
        let abi = ibv_mr {
            context: pd.context.as_abi(),
            pd: Arc::as_ptr(&pd).cast_mut().cast(),
            addr,
            length: registration.length(),
            handle: registration.key,
            lkey: registration.key,
            rkey: registration.rkey,
        };
        Box::into_raw(Box::new(Mr { abi, pd, registration })).cast()
    }

    /// The region behind a caller's pointer.
    ///
    /// # Safety
    /// `mr` is NULL or a region's struct of ours.
    pub(crate) unsafe fn from_abi<'a>(mr: *mut ibv_mr) -> Result<&'a Mr, Errno> {
        // SAFETY: `mr` is NULL or a region's struct of ours (see # Safety).
        unsafe { mr.cast::<Mr>().as_ref() }.ok_or(errno::EINVAL)
    }
}

impl Pd {
    /// The domain behind a caller's pointer; `ENOENT` if it was given back through another struct,
    /// or this one does not name it, and `EPERM` if it is of a parent of this process.
    ///
    /// # Safety
    /// `pd` is NULL or a protection domain's struct of ours.
    pub(crate) unsafe fn from_abi<'a>(pd: *mut ibv_pd) -> Result<InArc<'a, Pd>, Errno> {
        // SAFETY: `pd` is NULL or a protection domain's struct of ours (see # Safety).
        let pd = unsafe { Pd::named(pd) }?;
        pd.context.device.is_ours()?;
        if pd.users.has_ended() { Err(errno::ENOENT) } else { Ok(pd) }
    }

    /// As [`from_abi`](Self::from_abi), of a domain that may have ended, or be a parent's.
    ///
    /// # Safety
    /// As there.
    pub(crate) unsafe fn of_struct<'a>(pd: *mut ibv_pd) -> Result<InArc<'a, Pd>, Errno> {
        // SAFETY: `pd` is NULL or a struct of ours (see # Safety), and every domain lives in an
        // `Arc`.
        unsafe { InArc::new(pd.cast::<Pd>()) }.ok_or(errno::EINVAL)
    }

    /// Lender of memory to the queues of this domain, if it is a parent domain with allocators. It
    /// stays as long as there are such queues.
    pub(crate) fn lender(&self, resource: Resource) -> Option<MemoryLender> {
        let pd = core::ptr::from_ref(self).cast_mut().cast::<ibv_pd>();
        let allocators = self.parent.as_ref()?.allocators?;
        Some(MemoryLender::new(pd, allocators, resource))
    }
}

pub(crate) unsafe extern "C" fn alloc_pd(context: *mut ibv_context) -> *mut ibv_pd {
    static NEXT_ID: AtomicU32 = AtomicU32::new(1);
    // SAFETY: NULL, or a context of ours.
    errno::pointer(unsafe { Context::from_abi(context) }.and_then(|context| {
        alloc::headroom()?;
        let context = context.keep();
        let room = context.handles.pds.room()?;
        admit(&context.device.population.pds, limits::MAX_PD)?;
        let id = NEXT_ID.fetch_add(1, Ordering::Relaxed).max(1);
        let users = Arc::default();
        room.insert(id, Arc::clone(&users));
        let abi = ibv_pd { context: context.as_abi(), handle: id };
        let pd = Arc::new(Pd { abi, context, id, users, parent: None });
        pd.context.made(Object::ProtectionDomain, 0);
        Ok(Arc::into_raw(pd).cast_mut().cast())
    }))
}

pub(crate) unsafe extern "C" fn reg_mr(
    pd: *mut ibv_pd,
    addr: *mut c_void,
    length: usize,
    access: c_int,
) -> *mut ibv_mr {
    // SAFETY: `ibv_reg_mr` asks for a live `pd` of ours, as does `reg_mr_iova2`.
    unsafe { reg_mr_iova2(pd, addr, length, addr as u64, access as u32) }
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
        // The macro `ibv_reg_mr` of the C header asks for the address of the memory also with this
        // access.
        let iova = if access & ZERO_BASED != 0 { 0 } else { iova };
        let access = validate(addr, length, iova, access)?;
        let region = MrAttr {
            pd: pd.id,
            addr: addr.expose_provenance() as u64,
            iova,
            length: length as u64,
            access,
        };
        register(&pd, &region, addr, None)
    }))
}

/// Makes the object of a region, which callers know as one at `addr`.
pub(crate) fn register(
    pd: &InArc<'_, Pd>,
    region: &MrAttr,
    addr: *mut c_void,
    memory: Option<Arc<DmMemory>>,
) -> Result<*mut ibv_mr, Errno> {
    errno::memory()?;
    let device = &pd.context.device;
    let in_domain = pd.users.join()?;
    let of_memory = memory.as_ref().map(|memory| memory.regions.join()).transpose()?;
    let room = pd.context.handles.mrs.room()?;
    let key = device.key_for(pd.id, region)?;
    in_domain.keep();
    of_memory.into_iter().for_each(NewUser::keep);
    let length = region.length as usize;
    let is_device_memory = memory.is_some();
    let registration = MrRegistration::new((key, key), length, &pd.users, memory);
    room.insert(key, Arc::clone(&registration));
    pd.context.made(Object::MemoryRegion, key.into());
    pd.context.registered(region);
    if !is_device_memory {
        pd.context.region_at(key, addr.addr() as u64, length);
    }
    pd.context.trace_region(EventKind::RegisterMr, addr.addr() as u64, length);
    Ok(Mr::from_registration(pd.keep(), addr, registration))
}

/// The access bits that count: `EINVAL` for those that do not go together.
pub(crate) fn permitted(access: u32) -> Result<u32, Errno> {
    let access = access & !ACCESS_OPTIONAL_RANGE;
    let remote_writes = access & (REMOTE_WRITE | REMOTE_ATOMIC) != 0;
    if access & !KNOWN != 0 || (remote_writes && access & LOCAL_WRITE == 0) {
        return Err(errno::EINVAL);
    }
    Ok(access)
}

/// The access bits that count, or why the region cannot be registered: `EINVAL`
/// for bits that do not go together, `EOPNOTSUPP` for on-demand paging where the system does not
/// support it, `EFAULT` for addresses without memory, which an on-demand region may have. One of no
/// bytes can be anywhere.
pub(crate) fn validate(
    addr: *mut c_void,
    length: usize,
    iova: u64,
    access: u32,
) -> Result<u32, Errno> {
    let access = permitted(access)?;
    let is_for_reads = access & (LOCAL_WRITE | REMOTE | MW_BIND) == LOCAL_WRITE;
    let may_be = || on_demand::is_supported() || is_for_reads && on_demand::can_copy();
    if access & ON_DEMAND != 0 && !may_be() {
        return Err(errno::EOPNOTSUPP);
    }
    // The longest region is an implicit one, which begins at 0 and has all addresses.
    let end = (addr as u64).checked_add(length as u64);
    if end.is_none() || iova.checked_add(length as u64).is_none() {
        return Err(errno::EINVAL);
    }
    if length == 0 || access & ON_DEMAND != 0 {
        return Ok(access);
    }
    let is_read_only = || access & LOCAL_WRITE != 0 && is_read_only(addr, length);
    (is_mapped(addr, length) && !is_read_only()).then_some(access).ok_or(errno::EFAULT)
}

/// Reports whether memory that the device is to write cannot be written: a card that pins pages to
/// write to them refuses others. Before Linux 6.11, the kernel tells only of its first and its last
/// page.
fn is_read_only(addr: *mut c_void, length: usize) -> bool {
    let first = addr.addr();
    let last = first + (length - 1);
    let has_more = last / rustix::param::page_size() - first / rustix::param::page_size() > 1;
    !(on_demand::is_writable(first) && on_demand::is_writable(last))
        || has_more && maps::are_writable(first as u64, length as u64) == Ok(false)
}

/// Reports whether every page has memory behind it. A card finds out when it pins them; an
/// asynchronous msync does nothing but walk the mappings.
fn is_mapped(addr: *mut c_void, length: usize) -> bool {
    let page = rustix::param::page_size();
    let within = addr as usize % page;
    // The kernel takes what is rounded up to 0 for nothing, which is mapped.
    if (length + within).checked_next_multiple_of(page).is_none() {
        return false;
    }
    // SAFETY: the call neither reads nor writes memory of ours.
    unsafe {
        rustix::mm::msync(addr.byte_sub(within), length + within, rustix::mm::MsyncFlags::ASYNC)
    }
    .is_ok()
}

/// `ENOENT` if the region was deregistered through another struct, or this one does not name it;
/// `EBUSY` while windows are bound to it, and while it is being registered again, or deregistered,
/// through another struct.
pub(crate) unsafe extern "C" fn dereg_mr(mr: *mut ibv_mr) -> c_int {
    // SAFETY: NULL, or a region of ours that the caller gives back.
    errno::code(unsafe { Mr::named(mr) }.and_then(|object| {
        object.deregister()?;
        // SAFETY: `Mr::from_registration` made it; the caller owns it, and no thread uses it any more.
        drop(unsafe { Box::from_raw(mr.cast::<Mr>()) });
        Ok(())
    }))
}

impl Mr {
    fn deregister(&self) -> Result<(), Errno> {
        let (context, key) = (&self.pd.context, self.registration.key);
        let change = self.registration.change()?;
        let region =
            context.device.mrs.slot(key).map(|slot| MrAttr::from_published(&slot.published()));
        // Before the key ends: a request that is tried again under an invalid key fails its queue
        // pair, and would not count as outstanding any more.
        context.check_deregistered(key);
        context.device.end_key(&change)?;
        context.handles.mrs.remove(key);
        change.end();
        context.device.mrs.release(key);
        context.device.population.mrs.fetch_sub(1, Ordering::Relaxed);
        context.trace_region(EventKind::DeregisterMr, self.abi.addr.addr() as u64, self.abi.length);
        context.gone(Object::MemoryRegion, key.into());
        if let Some(region) = region {
            context.deregistered(&region);
        }
        Ok(())
    }
}

impl Device {
    /// Takes a key for a region of a domain: `ENOMEM` where there are as many regions as the device
    /// has.
    pub(crate) fn key_for(&self, pd: u32, region: &MrAttr) -> Result<u32, Errno> {
        let count = &self.population.mrs;
        admit(count, limits::MAX_MR)?;
        self.mrs.insert(pd, region, self.peers.as_ref()).inspect_err(|_| {
            count.fetch_sub(1, Ordering::Relaxed);
        })
    }

    /// Makes a region's key invalid, and waits for the accesses under it.
    fn end_key(&self, change: &KeyChange<'_>) -> Result<(), Errno> {
        let peers = self.peers.as_ref();
        self.mrs.invalidate(change, peers)?;
        // A process that was stopped in the middle of an access keeps the memory.
        self.end_accesses()
    }
}
