//! Devices: what they are called, what exists on them, and how they are listed.

use core::ffi::{CStr, c_char, c_int};
use core::ops::{Deref, DerefMut};
use core::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::net::Ipv4Addr;
use std::sync::{Arc, Once};

use host::sync::{Mutex, MutexGuard, OnceLock, RwLock};
use rustix::io::Errno;
use verbs_sys::*;

use crate::counters::{Counters, PacketCounters};
use crate::memory::mr_table::MrTable;
use crate::objects::reach::{gid_of_device, gid_of_user};
use crate::objects::state::{
    Device, ExecutionMode, PeerProcesses, Population, Qp, QpTable, XrcTable,
};
use crate::peers::process::directory::INDEX_BITS;
use crate::peers::wire::state::{RoceWire, ip_of};
use crate::queues::address::GidBytes;
use crate::queues::qp_state::QueuePairState;
use crate::timing::card::Card;
use crate::timing::network::Network;
use crate::timing::times::DistanceState;
use crate::udp::interface_index;
use crate::{errno, limits};

/// The device that is always there.
const DEFAULT_NAME: &str = "soft0";
/// QP numbers are 24 bits; 0 and 1 are special, and a few more are left out so
/// that a number that was never set belongs to no queue pair.
const FIRST_QPN: u32 = 0x40;
/// The rest of a number says which process.
const INDEX_MASK: u32 = (1 << INDEX_BITS) - 1;

impl core::fmt::Debug for Device {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Device").field("guid", &self.guid).finish_non_exhaustive()
    }
}

impl ExecutionMode {
    #[inline]
    fn is_synchronous(&self) -> bool {
        matches!(self, ExecutionMode::Synchronous)
    }
}

/// Counts one more, unless there are `limit` already.
pub(crate) fn admit(count: &AtomicUsize, limit: usize) -> Result<(), Errno> {
    admit_many(count, 1, limit)
}

/// Counts `more`, unless there are more than `limit` then.
pub(crate) fn admit_many(count: &AtomicUsize, more: usize, limit: usize) -> Result<(), Errno> {
    // Relaxed: the count guards no memory.
    count
        .try_update(Ordering::Relaxed, Ordering::Relaxed, |n| {
            n.checked_add(more).filter(|n| *n <= limit)
        })
        .map(drop)
        .map_err(|_| errno::ENOMEM)
}

impl QpTable {
    pub(crate) fn get(&self, number: u32) -> Option<Arc<Qp>> {
        self.by_number.read().get(&number).cloned()
    }

    /// All of them, in the order of their numbers.
    pub(crate) fn all(&self) -> Vec<Arc<Qp>> {
        self.by_number.read().values().cloned().collect()
    }

    /// Gives a queue pair the next free number: cyclic, so that a number is reused only after all
    /// others have been used. `base` is the part of the number that says which process.
    pub(crate) fn insert(
        &self,
        base: u32,
        make: impl FnOnce(u32) -> Arc<Qp>,
    ) -> Result<Arc<Qp>, Errno> {
        let number = self.reserve(base)?;
        // Without a lock: it may wait for a disk on which there is a trace.
        let qp = make(number);
        let mut reserved = self.reserved.lock();
        self.by_number.write().insert(number, Arc::clone(&qp));
        reserved.remove(&number);
        Ok(qp)
    }

    fn reserve(&self, base: u32) -> Result<u32, Errno> {
        let mut reserved = self.reserved.lock();
        let table = self.by_number.read();
        if table.len() + reserved.len() >= limits::MAX_QP {
            return Err(errno::ENOMEM);
        }
        let is_used = |number| table.contains_key(&number) || reserved.contains(&number);
        let mut index = self.next.load(Ordering::Relaxed).max(FIRST_QPN);
        while is_used(base | index) {
            index = Self::after(index);
        }
        // Relaxed: only touched under the lock of `reserved`.
        self.next.store(Self::after(index), Ordering::Relaxed);
        reserved.insert(base | index);
        Ok(base | index)
    }

    pub(crate) fn remove(&self, number: u32) {
        self.by_number.write().remove(&number);
    }

    /// The first number is anywhere.
    pub(crate) fn begin_anywhere(&self, anywhere: u64) {
        // Relaxed: as in `reserve`.
        self.next.store(Self::after(anywhere as u32 & INDEX_MASK), Ordering::Relaxed);
    }

    fn after(index: u32) -> u32 {
        ((index + 1) & INDEX_MASK).max(FIRST_QPN)
    }
}

impl Device {
    pub(crate) fn new(name: &str, ordinal: u64, kind: ExecutionMode) -> Arc<Device> {
        let peers = kind.is_synchronous().then(PeerProcesses::default);
        Device::with_peers(name, ordinal, kind, peers)
    }

    /// A device whose queue pairs reach those of other processes so.
    pub(crate) fn with_peers(
        name: &str,
        ordinal: u64,
        kind: ExecutionMode,
        peers: Option<PeerProcesses>,
    ) -> Arc<Device> {
        Arc::new(Device {
            abi: abi(name),
            slack: [0; 8],
            guid: limits::GUID_BASE + ordinal,
            gid: OnceLock::new(),
            process: std::process::id(),
            world: host::world_number(),
            qps: QpTable::default(),
            mrs: MrTable::default(),
            xrc: XrcTable::default(),
            groups: RwLock::default(),
            timer: Arc::default(),
            timed_events: Mutex::default(),
            contexts: Mutex::default(),
            population: Population::default(),
            network: Network::default(),
            qkey_violations: AtomicU32::new(0),
            missed: AtomicU64::new(0),
            overflowed: AtomicU64::new(0),
            retired: Mutex::default(),
            peers,
            kind,
        })
    }

    /// `EPERM` in a child of fork, which has devices of its own.
    pub(crate) fn is_ours(&self) -> Result<(), Errno> {
        if self.process == std::process::id() { Ok(()) } else { Err(errno::EPERM) }
    }

    /// Reports whether requests are executed inside their post.
    #[inline]
    pub(crate) fn is_synchronous(&self) -> bool {
        self.kind.is_synchronous()
    }

    /// State that a simulated device has in addition.
    #[inline]
    pub(crate) fn sim(&self) -> Option<&crate::timing::simulation::SimulationState> {
        match &self.kind {
            ExecutionMode::Simulated(state) => Some(state),
            _ => None,
        }
    }

    /// State that a distant device has in addition.
    #[inline]
    pub(crate) fn distance(&self) -> Option<&DistanceState> {
        match &self.kind {
            ExecutionMode::Distant(distance) => Some(distance),
            _ => None,
        }
    }

    /// State that a device on the network has in addition.
    #[inline]
    pub(crate) fn wire(&self) -> Option<&RoceWire> {
        match &self.kind {
            ExecutionMode::Wired(wire) => Some(wire),
            _ => None,
        }
    }

    /// Reports whether queue pairs of the device's own GID reach each other by memory.
    pub(crate) fn loops_by_memory(&self) -> bool {
        self.wire().is_none_or(|wire| !wire.loops)
    }

    /// Its GID, the only entry of the port's table.
    pub(crate) fn gid(&self) -> GidBytes {
        if let Some(wire) = self.wire() {
            return wire.gid;
        }
        *self.gid.get_or_init(|| {
            let connects_processes = self.peers.as_ref().is_some_and(PeerProcesses::is_here);
            if connects_processes { gid_of_user() } else { gid_of_device() }
        })
    }

    /// Bytes of the longest datagram.
    pub(crate) fn mtu(&self) -> u64 {
        self.wire().map_or(limits::MTU, |wire| wire.port_state.mtu().into())
    }

    /// The number of the interface that has the address that its GID stands for, or 0.
    pub(crate) fn interface(&self) -> u32 {
        let address = self.wire().map_or(Ipv4Addr::LOCALHOST.into(), |wire| ip_of(&wire.gid));
        interface_index(address).unwrap_or(0)
    }

    /// Its `device_cap_flags`.
    pub(crate) fn capabilities(&self) -> u32 {
        let xrc = ibv_device_cap_flags::IBV_DEVICE_XRC.0;
        limits::CAPABILITIES & if self.wire().is_some() { !xrc } else { !0 }
    }

    /// `EOPNOTSUPP` for what it does not say that it has: each verb that makes an object of a
    /// capability asks here.
    pub(crate) fn offers(&self, capability: ibv_device_cap_flags) -> Result<(), Errno> {
        let is_there = self.capabilities() & capability.0 != 0;
        if is_there { Ok(()) } else { Err(errno::EOPNOTSUPP) }
    }

    /// Reports whether an interface has the address that its GID stands for.
    pub(crate) fn has_gid(&self) -> bool {
        self.wire().is_none_or(|wire| wire.port_state.has_gid())
    }

    /// Objects that exist on it, by kind.
    #[cfg(feature = "simulation")]
    pub(crate) fn left(&self) -> Vec<(&'static str, usize)> {
        let population = &self.population;
        // Relaxed: the program's threads have ended.
        let count = |n: &AtomicUsize| n.load(Ordering::Relaxed);
        let mut left = vec![
            ("queue pairs", self.qps.all().len()),
            ("memory regions", self.mrs.used()),
            ("protection domains", count(&population.pds)),
            ("completion queues", count(&population.cqs)),
            ("shared receive queues", count(&population.srqs)),
            ("address handles", count(&population.ahs)),
            ("memory windows", count(&population.mws)),
            ("completion channels", count(&population.channels)),
            ("contexts", count(&population.contexts)),
            ("XRC domains", count(&population.xrcds)),
            ("XRC receive queues", self.xrc.srqs.read().len()),
            ("bytes of device memory", count(&population.dm_bytes)),
            ("multicast groups", self.groups.read().members.len()),
        ];
        left.retain(|(_, count)| *count > 0);
        left
    }

    /// [`card`](Self::card), which a synchronous device is not asked for.
    #[inline]
    pub(crate) fn charging_card(&self) -> Option<&Card> {
        if self.is_synchronous() { None } else { self.card() }
    }

    /// Costs of its cards' operations.
    #[cold]
    pub(crate) fn card(&self) -> Option<&Card> {
        self.distance()?.card.as_ref()
    }

    pub(crate) fn name(&self) -> &str {
        // SAFETY: the name is a field of the device, and ends with zero.
        let name = unsafe { CStr::from_ptr((&raw const self.abi.name).cast()) };
        name.to_str().unwrap_or_default()
    }

    pub(crate) fn as_abi(self: &Arc<Device>) -> *mut ibv_device {
        Arc::as_ptr(self).cast_mut().cast()
    }

    /// Statistics of all queue pairs, those that are gone included.
    pub(crate) fn counters(&self) -> Counters {
        let mut sum = *self.retired.lock();
        for qp in self.qps.all() {
            let sq = qp.sq.lock();
            sum += sq.counters;
            if let Some(wire) = &sq.wire {
                wire.add_counts(&mut sum);
            }
        }
        // Relaxed: statistics.
        sum.missed = self.missed.load(Ordering::Relaxed);
        sum.overflowed = self.overflowed.load(Ordering::Relaxed);
        sum
    }
}

/// The packets of the device on the network of that name (`roce:127.0.0.2`), if there is one.
///
/// ```
/// assert!(soft_rnic::packet_counters_of("soft0").is_none());
/// ```
#[must_use]
pub fn packet_counters_of(name: &str) -> Option<PacketCounters> {
    let device = DEVICES.lock().iter().find(|device| device.name() == name).cloned();
    device?.wire().map(RoceWire::packet_counters)
}

/// The ABI's description of a device called `name`.
fn abi(name: &str) -> ibv_device {
    let mut text = [0; 64];
    // One byte is left for the terminating zero.
    for (to, from) in text.iter_mut().take(63).zip(name.bytes()) {
        *to = from as c_char;
    }
    ibv_device {
        _ops: _ibv_device_ops { _dummy1: None, _dummy2: None },
        node_type: ibv_node_type::IBV_NODE_CA,
        transport_type: ibv_transport_type::IBV_TRANSPORT_IB,
        name: text,
        dev_name: text,
        dev_path: [0; 256],
        ibdev_path: [0; 256],
    }
}

/// The devices that can be listed, and the process that they are of. A child of fork begins anew;
/// the devices of its parent stay as they are, as the child has objects of them.
pub(crate) struct DeviceRegistry(Mutex<(u32, Vec<Arc<Device>>)>);

/// The list, while its lock is held.
pub(crate) struct RegistryGuard<'l>(MutexGuard<'l, (u32, Vec<Arc<Device>>)>);

pub(crate) static DEVICES: DeviceRegistry = DeviceRegistry(Mutex::new((0, Vec::new())));

impl DeviceRegistry {
    pub(crate) fn lock(&self) -> RegistryGuard<'_> {
        let mut list = self.0.lock();
        let process = std::process::id();
        if list.0 != process {
            let own = vec![Device::new(DEFAULT_NAME, 0, ExecutionMode::Synchronous)];
            core::mem::forget(core::mem::replace(&mut *list, (process, own)));
            static NOTICES: Once = Once::new();
            // Without memory for the handler, what a child posts is lost.
            // SAFETY: the handler takes locks that are free, or none, and stores integers.
            NOTICES
                .call_once(|| unsafe { _ = libc::pthread_atfork(None, None, Some(in_the_child)) });
        }
        RegistryGuard(list)
    }
}

impl Deref for RegistryGuard<'_> {
    type Target = Vec<Arc<Device>>;

    fn deref(&self) -> &Vec<Arc<Device>> {
        &self.0.1
    }
}

impl DerefMut for RegistryGuard<'_> {
    fn deref_mut(&mut self) -> &mut Vec<Arc<Device>> {
        &mut self.0.1
    }
}

/// The device that this process has in the place of one, which may be of its parent.
pub(crate) fn of_this_process(device: &Arc<Device>) -> Result<Arc<Device>, Errno> {
    if device.is_ours().is_ok() {
        return Ok(Arc::clone(device));
    }
    let own = DEVICES.lock().iter().find(|own| own.name() == device.name()).cloned();
    own.ok_or(errno::ENODEV)
}

/// In a child of fork: its parent's queue pairs take no requests, and their completion queues no
/// polls. What a thread of the parent had locked stays locked.
extern "C" fn in_the_child() {
    let Some(list) = DEVICES.0.try_lock() else { return };
    for device in &list.1 {
        let Some(qps) = device.qps.by_number.try_read() else { continue };
        for qp in qps.values() {
            // Relaxed: the child has one thread.
            qp.state.store(QueuePairState::Destroyed as u8, Ordering::Relaxed);
            qp.send_cq.dead.store(true, Ordering::Relaxed);
            qp.recv_cq.dead.store(true, Ordering::Relaxed);
        }
    }
}

/// The device that is always there.
pub(crate) fn default_device() -> Arc<Device> {
    Arc::clone(&DEVICES.lock()[0])
}

/// The devices that the calling thread may use. Those of a world are its threads' alone: it waits
/// for all users of a device to go, and threads outside go by real time.
pub(crate) fn visible() -> Vec<Arc<Device>> {
    let world = host::world_number();
    let is_visible = |device: &&Arc<Device>| device.world == 0 || device.world == world;
    DEVICES.lock().iter().filter(is_visible).cloned().collect()
}

pub(crate) unsafe extern "C" fn get_device_list(num_devices: *mut c_int) -> *mut *mut ibv_device {
    let visible = visible().into_iter();
    let mut list: Vec<*mut ibv_device> =
        visible.map(|d| Arc::into_raw(d).cast_mut().cast()).collect();
    // SAFETY: the caller gives NULL or a place for the number.
    if let Some(out) = unsafe { num_devices.as_mut() } {
        *out = list.len() as c_int;
    }
    list.push(core::ptr::null_mut());
    Box::into_raw(list.into_boxed_slice()).cast()
}

pub(crate) unsafe extern "C" fn free_device_list(list: *mut *mut ibv_device) {
    if list.is_null() {
        return;
    }
    // SAFETY: the list was made by `get_device_list`: it ends with NULL, and each
    // entry before holds one reference to a device.
    unsafe {
        let mut len = 0;
        while !(*list.add(len)).is_null() {
            drop(Arc::from_raw((*list.add(len)).cast::<Device>()));
            len += 1;
        }
        drop(Box::from_raw(core::ptr::slice_from_raw_parts_mut(list, len + 1)));
    }
}

pub(crate) unsafe extern "C" fn get_device_name(device: *mut ibv_device) -> *const c_char {
    if device.is_null() {
        return core::ptr::null();
    }
    // SAFETY: a device of ours; the name is a field of it and ends with zero.
    unsafe { (&raw const (*device).name).cast() }
}

pub(crate) unsafe extern "C" fn get_device_guid(device: *mut ibv_device) -> __be64 {
    // SAFETY: NULL, or a device of ours.
    unsafe { device.cast::<Device>().as_ref() }.map_or(0, |d| d.guid.to_be())
}

/// Statistics of `soft0` since the process began.
///
/// ```
/// assert_eq!(soft_rnic::counters().faults, 0); // unless they are asked for
/// ```
#[must_use]
pub fn counters() -> Counters {
    crate::objects::device::default_device().counters()
}

/// Statistics of the device of that name since it is there, if there is one: `soft0`, one at
/// a [distance](crate::distant), or a [`Simulation`](crate::Simulation).
///
/// ```
/// assert!(soft_rnic::counters_of("soft0").is_some());
/// assert!(soft_rnic::counters_of("soft1").is_none());
/// ```
#[must_use]
pub fn counters_of(name: &str) -> Option<Counters> {
    device_of(name).map(|device| device.counters())
}

fn device_of(name: &str) -> Option<Arc<Device>> {
    DEVICES.lock().iter().find(|device| device.name() == name).cloned()
}

/// True if the device of that name speaks RoCE v2 on a network.
///
/// ```
/// assert!(!soft_rnic::is_on_the_network("soft0"));
/// ```
#[must_use]
pub fn is_on_the_network(name: &str) -> bool {
    device_of(name).is_some_and(|device| device.wire().is_some())
}

#[cfg(test)]
mod tests;
