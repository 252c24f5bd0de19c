//! The verbs of contexts, and what they tell of the device and its port.

use core::cell::UnsafeCell;
use core::ffi::c_int;
use core::sync::atomic::{AtomicU64, Ordering};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::Arc;

use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, fstat, memfd_create};
use rustix::io::Errno;
use verbs_sys::*;

use crate::event::EventQueue;
use crate::faults::injector::injector;
use crate::memory::on_demand;
use crate::objects::device::of_this_process;
use crate::objects::handles::{CommandFd, CommandFileId, Handles};
use crate::objects::in_arc::InArc;
use crate::objects::state::{Context, Device, QueuedEvent};
use crate::objects::{srq, timed_events};
use crate::peers::wire::port_state::PortState;
use crate::timing::card::CardLink;
use crate::trace::layout::EventKind;
use crate::verbs::post;
use crate::{errno, limits};

use super::{cq, cq_ex, ops};

impl Context {
    fn open(device: Arc<Device>) -> Result<Arc<Context>, Errno> {
        crate::alloc::headroom()?;
        let command = command_file(device.name())?;
        let handles = Handles::for_file(file_id(&command)?);
        Ok(Context::with_command(device, EventQueue::new()?, command, handles))
    }

    /// A context with this command descriptor.
    pub(super) fn with_command(
        device: Arc<Device>,
        events: EventQueue<QueuedEvent>,
        command: OwnedFd,
        handles: Arc<Handles>,
    ) -> Arc<Context> {
        // SAFETY: zero is a valid value of every field (null pointers, no
        // operations, an unlocked mutex).
        let mut abi: verbs_context = unsafe { core::mem::zeroed() };
        ops::fill(&mut abi);
        abi.query_port = Some(query_port_ex);
        abi.query_device_ex = Some(query_device_ex);
        abi.get_srq_num = Some(srq::get_srq_num);
        abi.query_rt_values = Some(cq_ex::query_rt_values);
        abi.sz = size_of::<verbs_context>();
        abi.context.device = device.as_abi();
        abi.context.ops.poll_cq = Some(cq::poll_cq);
        abi.context.ops.req_notify_cq = Some(cq::req_notify_cq);
        abi.context.ops.post_send = Some(post::post_send);
        abi.context.ops.post_recv = Some(post::post_recv);
        abi.context.ops.post_srq_recv = Some(srq::post_srq_recv);
        let tracer = crate::trace::tracer::tracer();
        // What its handler does at exit may end the process: that of others runs before.
        let checker = crate::check::checker::checker();
        // Other devices have faults of their own, or none.
        let injector = device.is_synchronous().then(injector).flatten();
        let is_watched = tracer.is_some() || checker.is_some();
        if is_watched || injector.as_ref().is_some_and(|it| it.plan().strikes_requests()) {
            abi.context.ops.post_send = Some(post::post_send_queued);
        }
        if is_watched {
            abi.context.ops.post_recv = Some(post::post_recv_watched);
            abi.context.ops.post_srq_recv = Some(srq::post_srq_recv_watched);
        }
        if let Some(tracer) = &tracer {
            tracer.log(EventKind::Open, (0, 0, 0), (0, 0), device.guid);
        }
        abi.context.cmd_fd = command.as_raw_fd();
        abi.context.async_fd = events.raw_fd();
        abi.context.num_comp_vectors = 1;
        abi.context.abi_compat = VERBS_ABI_IS_EXTENDED;
        Arc::new(Context {
            link: CardLink::default(),
            abi: UnsafeCell::new(abi),
            device,
            events,
            tracer,
            checker,
            injector,
            _command: CommandFd::new(command, &handles),
            handles,
        })
    }
}

/// Seals of a command descriptor's file.
pub(super) const SEALS: SealFlags =
    SealFlags::WRITE.union(SealFlags::GROW).union(SealFlags::SHRINK).union(SealFlags::SEAL);

/// Makes the file of a context's command descriptor. Nothing goes through it; programs duplicate
/// it, and import the device by the duplicate. It is a sealed memory file, and says which context
/// it is of: the device, the process, and how many were opened before.
fn command_file(device: &str) -> Result<OwnedFd, Errno> {
    static OPENED: AtomicU64 = AtomicU64::new(0);
    // Relaxed: a number that guards no memory.
    let n = OPENED.fetch_add(1, Ordering::Relaxed);
    let file = memfd_create(device, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
    let text = format!("{device} {} {n}\n", std::process::id());
    // A file of memory takes all of so few bytes.
    rustix::io::write(&file, text.as_bytes())?;
    fcntl_add_seals(&file, SEALS)?;
    Ok(file)
}

/// Identity of the file of a descriptor: its filesystem, and its inode there.
pub(super) fn file_id(file: impl AsFd) -> Result<CommandFileId, Errno> {
    let stat = fstat(file)?;
    Ok((stat.st_dev, stat.st_ino))
}

pub(crate) unsafe extern "C" fn open_device(device: *mut ibv_device) -> *mut ibv_context {
    // SAFETY: NULL, or a device of ours, which lives in an Arc that the list holds.
    let device = unsafe { InArc::new(device.cast::<Device>()) }.ok_or(errno::EINVAL);
    let opened = device.and_then(|device| Context::open(of_this_process(&device)?));
    errno::pointer(opened.map(give))
}

/// Gives the program a new context, opened or imported.
pub(super) fn give(context: Arc<Context>) -> *mut ibv_context {
    timed_events::begin(&context);
    context.device.start_wire_thread();
    context.opened();
    // Relaxed, here and where it is closed: the count guards no memory.
    context.device.population.contexts.fetch_add(1, Ordering::Relaxed);
    let abi = context.as_abi();
    // The caller's reference; `close_device` takes it back.
    core::mem::forget(context);
    abi
}

/// Succeeds although objects remain, as with rdma-core: each holds the context, whose operations
/// and descriptors they need, and which goes with the last of them.
pub(crate) unsafe extern "C" fn close_device(context: *mut ibv_context) -> c_int {
    // SAFETY: NULL, or a context that the caller gives back.
    errno::code(unsafe { Context::of_struct(context) }.map(|context| {
        context.closed();
        context.device.population.contexts.fetch_sub(1, Ordering::Relaxed);
        // SAFETY: takes back the reference of `open_device`.
        unsafe { Arc::decrement_strong_count(Arc::as_ptr(&context)) };
    }))
}

pub(crate) unsafe extern "C" fn query_device(
    context: *mut ibv_context,
    attr: *mut ibv_device_attr,
) -> c_int {
    // SAFETY: NULL, or a context of ours and a struct to fill.
    errno::code(unsafe { Context::from_abi(context) }.and_then(|context| {
        // SAFETY: `attr` is NULL, or the caller's struct to fill.
        let attr = unsafe { attr.as_mut() }.ok_or(errno::EINVAL)?;
        *attr = attributes(&context.device);
        Ok(())
    }))
}

/// Result of `ibv_query_device`: on the network there are fewer groups.
fn attributes(device: &Device) -> ibv_device_attr {
    let all = limits::device_attr(device.guid, device.capabilities());
    if device.wire().is_none() {
        return all;
    }
    ibv_device_attr {
        max_mcast_grp: limits::MAX_WIRE_GROUPS as c_int,
        max_total_mcast_qp_attach: limits::MAX_WIRE_GROUPS as c_int * all.max_mcast_qp_attach,
        ..all
    }
}

unsafe extern "C" fn query_device_ex(
    context: *mut ibv_context,
    input: *const ibv_query_device_ex_input,
    attr: *mut ibv_device_attr_ex,
    attr_size: usize,
) -> c_int {
    // SAFETY: NULL, or a context of ours and the caller's structs.
    errno::code(unsafe { Context::from_abi(context) }.and_then(|context| {
        // SAFETY: `input` is NULL, or the caller's struct.
        let asks_more = unsafe { input.as_ref() }.is_some_and(|input| input.comp_mask != 0);
        if attr.is_null() || asks_more || attr_size < size_of::<ibv_device_attr>() {
            return Err(errno::EINVAL);
        }
        let full = extended_attributes(&context.device);
        // SAFETY: the caller's struct has `attr_size` bytes.
        unsafe { write_bounded(&full, attr.cast(), attr_size) };
        Ok(())
    }))
}

/// Result of `ibv_query_device_ex`.
fn extended_attributes(device: &Device) -> ibv_device_attr_ex {
    // SAFETY: zero is a valid value of every field.
    let mut full: ibv_device_attr_ex = unsafe { core::mem::zeroed() };
    full.orig_attr = attributes(device);
    // The first 32 are those of the older call.
    full.device_cap_flags_ex = u64::from(full.orig_attr.device_cap_flags) | limits::ATOMIC_WRITE;
    // What is left 0 the device does not have: on-demand paging for all uses, segmentation, work
    // queues, pacing, raw packets, tag matching, moderated events, atomics on its bus.
    full.phys_port_cnt_ex = 1;
    full.completion_timestamp_mask = u64::MAX;
    full.hca_core_clock = crate::clock::KHZ;
    full.max_dm_size = limits::MAX_DM as u64;
    full.cq_mod_caps = ibv_cq_moderation_caps {
        max_cq_count: limits::MAX_CQ_COUNT,
        max_cq_period: limits::MAX_CQ_PERIOD_US,
    };
    (full.odp_caps, full.xrc_odp_caps) = on_demand::caps();
    if device.offers(ibv_device_cap_flags::IBV_DEVICE_XRC).is_err() {
        full.xrc_odp_caps = 0;
    }
    full
}

/// The exported function: its callers may know a shorter struct of 48 bytes.
pub(crate) unsafe extern "C" fn query_port(
    context: *mut ibv_context,
    port_num: u8,
    attr: *mut ibv_port_attr,
) -> c_int {
    const SHORT: usize = 48;
    // SAFETY: the caller's struct has at least these bytes.
    unsafe { query_port_ex(context, port_num, attr, SHORT) }
}

unsafe extern "C" fn query_port_ex(
    context: *mut ibv_context,
    port_num: u8,
    attr: *mut ibv_port_attr,
    len: usize,
) -> c_int {
    // SAFETY: NULL, or a context of ours.
    errno::code(unsafe { Context::from_abi(context) }.and_then(|context| {
        if attr.is_null() || port_num != limits::PORT {
            return Err(errno::EINVAL);
        }
        // SAFETY: the caller's struct has `len` bytes.
        unsafe { write_bounded(&port_attributes(&context), attr.cast(), len) };
        Ok(())
    }))
}

/// Result of `ibv_query_port`.
fn port_attributes(object: &Context) -> ibv_port_attr {
    // Relaxed: a statistic.
    let violations = object.device.qkey_violations.load(Ordering::Relaxed);
    // Relaxed: a flag that guards no memory.
    let is_down = object.handles.is_port_down.load(Ordering::Relaxed);
    let of_wire = object.device.wire().map(|wire| &wire.port_state);
    let is_down = is_down || of_wire.is_some_and(PortState::is_down);
    let port = ibv_port_attr { qkey_viol_cntr: violations, ..limits::port_attr(is_down) };
    match of_wire {
        Some(state) => ibv_port_attr { active_mtu: ibv_mtu(state.mtu_code()), ..port },
        None => port,
    }
}

/// Writes as much of `value` as the caller has room for, and zeroes behind it.
///
/// # Safety
/// `to .. to + len` is writable; `T` has no padding that matters.
unsafe fn write_bounded<T: Copy>(value: &T, to: *mut u8, len: usize) {
    let known = len.min(size_of::<T>());
    // SAFETY: both lie within the caller's struct and the value.
    unsafe {
        to.write_bytes(0, len);
        core::ptr::copy_nonoverlapping(core::ptr::from_ref(value).cast::<u8>(), to, known);
    }
}

pub(crate) unsafe extern "C" fn query_gid(
    context: *mut ibv_context,
    port_num: u8,
    index: c_int,
    gid: *mut ibv_gid,
) -> c_int {
    // SAFETY: NULL, or a context of ours.
    let (Ok(object), false) = (unsafe { Context::from_abi(context) }, gid.is_null()) else {
        return errno::minus_one(Err(errno::EINVAL));
    };
    if port_num != limits::PORT || index != 0 {
        return errno::minus_one(Err(errno::EINVAL));
    }
    // An entry without an address is all zero, as rdma-core has it.
    let raw = if object.device.has_gid() { object.device.gid() } else { [0; 16] };
    // SAFETY: the caller's place for one GID.
    unsafe { gid.write(ibv_gid { raw }) };
    0
}

pub(crate) unsafe extern "C" fn query_gid_ex(
    context: *mut ibv_context,
    port_num: u32,
    index: u32,
    entry: *mut ibv_gid_entry,
    flags: u32,
    entry_size: usize,
) -> c_int {
    let is_short = entry_size < size_of::<ibv_gid_entry>();
    // SAFETY: NULL, or a context of ours.
    errno::code(unsafe { Context::from_abi(context) }.and_then(|context| {
        let is_there = port_num == u32::from(limits::PORT) && index == 0;
        if entry.is_null() || flags != 0 || is_short || !is_there {
            return Err(errno::EINVAL);
        }
        let device = &context.device;
        if !device.has_gid() {
            return Err(errno::ENODATA);
        }
        let value = ibv_gid_entry {
            gid: ibv_gid { raw: device.gid() },
            gid_index: 0,
            port_num,
            gid_type: ibv_gid_type::IBV_GID_TYPE_ROCE_V2.0,
            ndev_ifindex: device.interface(),
        };
        // SAFETY: the caller's struct has `entry_size` bytes.
        unsafe { write_bounded(&value, entry.cast(), entry_size) };
        Ok(())
    }))
}

pub(crate) unsafe extern "C" fn query_pkey(
    context: *mut ibv_context,
    port_num: u8,
    index: c_int,
    pkey: *mut __be16,
) -> c_int {
    if context.is_null() || pkey.is_null() || port_num != limits::PORT || index != 0 {
        return errno::minus_one(Err(errno::EINVAL));
    }
    // SAFETY: the caller's place for one key.
    unsafe { pkey.write(limits::PKEY.to_be()) };
    0
}
