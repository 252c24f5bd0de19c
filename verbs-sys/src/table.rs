//! The table of verbs functions.

use core::ffi::{c_char, c_int, c_void};

use crate::*;

/// Declares the table, and how a symbol library fills it. `required` functions
/// are in every libibverbs.so.1; `optional` ones were added later.
macro_rules! table {
    (
        required { $( $(#[$doc:meta])* $name:ident = $sym:literal : fn($($arg:ident : $ty:ty),*) $(-> $ret:ty)?; )* }
        optional { $( $(#[$odoc:meta])* $oname:ident = $osym:literal : fn($($oarg:ident : $oty:ty),*) $(-> $oret:ty)?; )* }
    ) => {
        /// The verbs functions of one provider: a loaded libibverbs, or a software
        /// device. Each has the meaning, arguments and errors of its manual page.
        #[derive(Clone, Copy)]
        pub struct Verbs {
            $( $(#[$doc])* pub $name: unsafe extern "C" fn($($arg: $ty),*) $(-> $ret)?, )*
            $( $(#[$odoc])* pub $oname: Option<unsafe extern "C" fn($($oarg: $oty),*) $(-> $oret)?>, )*
        }

        #[cfg(feature = "load")]
        impl Verbs {
            /// Fills the table from `library`; the error names the first symbol
            /// that it lacks.
            ///
            /// # Safety
            /// `library` is a libibverbs of ABI 1, and stays loaded for as long as
            /// the table is used.
            pub(crate) unsafe fn from_library(
                library: &libloading::Library,
            ) -> Result<Verbs, &'static str> {
                // SAFETY: the symbols have these types in every libibverbs.so.1.
                unsafe {
                    Ok(Verbs {
                        $( $name: *library.get($sym.as_bytes()).map_err(|_| $sym)?, )*
                        $( $oname: library.get($osym.as_bytes()).ok().map(|s| *s), )*
                    })
                }
            }
        }
    };
}

table! {
    required {
        /// NULL-terminated array of devices; NULL and `ENOSYS` where the kernel has no RDMA.
        get_device_list = "ibv_get_device_list": fn(num_devices: *mut c_int) -> *mut *mut ibv_device;
        /// Frees the array; open devices stay open.
        free_device_list = "ibv_free_device_list": fn(list: *mut *mut ibv_device);
        /// The name that users know: `mlx5_0`, `rxe0`, `soft0`.
        get_device_name = "ibv_get_device_name": fn(device: *mut ibv_device) -> *const c_char;
        /// The node GUID.
        get_device_guid = "ibv_get_device_guid": fn(device: *mut ibv_device) -> __be64;
        /// Opens a context.
        open_device = "ibv_open_device": fn(device: *mut ibv_device) -> *mut ibv_context;
        /// Closes a context; everything made from it is gone by then.
        close_device = "ibv_close_device": fn(context: *mut ibv_context) -> c_int;
        /// Limits and capabilities.
        query_device = "ibv_query_device": fn(context: *mut ibv_context, attr: *mut ibv_device_attr) -> c_int;
        /// The exported symbol, which knows a shorter struct: call [`ibv_query_port`].
        query_port = "ibv_query_port": fn(context: *mut ibv_context, port_num: u8, attr: *mut ibv_port_attr) -> c_int;
        /// One entry of a port's GID table.
        query_gid = "ibv_query_gid": fn(context: *mut ibv_context, port_num: u8, index: c_int, gid: *mut ibv_gid) -> c_int;
        /// One entry of a port's P_Key table.
        query_pkey = "ibv_query_pkey": fn(context: *mut ibv_context, port_num: u8, index: c_int, pkey: *mut __be16) -> c_int;
        /// A protection domain.
        alloc_pd = "ibv_alloc_pd": fn(context: *mut ibv_context) -> *mut ibv_pd;
        /// `EBUSY` while something belongs to it.
        dealloc_pd = "ibv_dealloc_pd": fn(pd: *mut ibv_pd) -> c_int;
        /// The exported symbol, which drops optional access bits: call [`ibv_reg_mr`].
        reg_mr = "ibv_reg_mr": fn(pd: *mut ibv_pd, addr: *mut c_void, length: usize, access: c_int) -> *mut ibv_mr;
        /// Ends a registration; the keys are refused from then on.
        dereg_mr = "ibv_dereg_mr": fn(mr: *mut ibv_mr) -> c_int;
        /// A completion event channel; its descriptor can be polled.
        create_comp_channel = "ibv_create_comp_channel": fn(context: *mut ibv_context) -> *mut ibv_comp_channel;
        /// `EBUSY` while a completion queue uses it.
        destroy_comp_channel = "ibv_destroy_comp_channel": fn(channel: *mut ibv_comp_channel) -> c_int;
        /// A completion queue of at least `cqe` entries.
        create_cq = "ibv_create_cq": fn(context: *mut ibv_context, cqe: c_int, cq_context: *mut c_void, channel: *mut ibv_comp_channel, comp_vector: c_int) -> *mut ibv_cq;
        /// Changes the number of entries.
        resize_cq = "ibv_resize_cq": fn(cq: *mut ibv_cq, cqe: c_int) -> c_int;
        /// `EBUSY` while a queue pair uses it; waits until all its events are acknowledged.
        destroy_cq = "ibv_destroy_cq": fn(cq: *mut ibv_cq) -> c_int;
        /// Blocks for the next completion event (`EAGAIN` on a non-blocking descriptor).
        get_cq_event = "ibv_get_cq_event": fn(channel: *mut ibv_comp_channel, cq: *mut *mut ibv_cq, cq_context: *mut *mut c_void) -> c_int;
        /// Acknowledges events, so that the queue can be destroyed.
        ack_cq_events = "ibv_ack_cq_events": fn(cq: *mut ibv_cq, nevents: u32);
        /// A shared receive queue.
        create_srq = "ibv_create_srq": fn(pd: *mut ibv_pd, attr: *mut ibv_srq_init_attr) -> *mut ibv_srq;
        /// Arms the limit event (one-shot), or resizes.
        modify_srq = "ibv_modify_srq": fn(srq: *mut ibv_srq, attr: *mut ibv_srq_attr, mask: c_int) -> c_int;
        /// The queue's present attributes.
        query_srq = "ibv_query_srq": fn(srq: *mut ibv_srq, attr: *mut ibv_srq_attr) -> c_int;
        /// `EBUSY` while a queue pair uses it.
        destroy_srq = "ibv_destroy_srq": fn(srq: *mut ibv_srq) -> c_int;
        /// A queue pair in RESET; `attr.cap` becomes what was granted.
        create_qp = "ibv_create_qp": fn(pd: *mut ibv_pd, attr: *mut ibv_qp_init_attr) -> *mut ibv_qp;
        /// Attributes and state.
        query_qp = "ibv_query_qp": fn(qp: *mut ibv_qp, attr: *mut ibv_qp_attr, mask: c_int, init: *mut ibv_qp_init_attr) -> c_int;
        /// A state transition with its attributes.
        modify_qp = "ibv_modify_qp": fn(qp: *mut ibv_qp, attr: *mut ibv_qp_attr, mask: c_int) -> c_int;
        /// After it returns, nothing more is written to the queue pair's buffers.
        destroy_qp = "ibv_destroy_qp": fn(qp: *mut ibv_qp) -> c_int;
        /// An address handle, for datagrams.
        create_ah = "ibv_create_ah": fn(pd: *mut ibv_pd, attr: *mut ibv_ah_attr) -> *mut ibv_ah;
        /// Destroys an address handle.
        destroy_ah = "ibv_destroy_ah": fn(ah: *mut ibv_ah) -> c_int;
        /// Attaches a datagram queue pair to a multicast group.
        attach_mcast = "ibv_attach_mcast": fn(qp: *mut ibv_qp, gid: *const ibv_gid, lid: u16) -> c_int;
        /// Ends what `attach_mcast` began; a queue pair that is attached cannot be destroyed.
        detach_mcast = "ibv_detach_mcast": fn(qp: *mut ibv_qp, gid: *const ibv_gid, lid: u16) -> c_int;
        /// Blocks for the next asynchronous event (`EAGAIN` on a non-blocking descriptor).
        get_async_event = "ibv_get_async_event": fn(context: *mut ibv_context, event: *mut ibv_async_event) -> c_int;
        /// Acknowledges one, so that its object can be destroyed.
        ack_async_event = "ibv_ack_async_event": fn(event: *mut ibv_async_event);
    }
    optional {
        /// Registration with optional access bits (rdma-core 27).
        reg_mr_iova2 = "ibv_reg_mr_iova2": fn(pd: *mut ibv_pd, addr: *mut c_void, length: usize, iova: u64, access: u32) -> *mut ibv_mr;
        /// GID with its type (rdma-core 32).
        query_gid_ex = "_ibv_query_gid_ex": fn(context: *mut ibv_context, port_num: u32, index: u32, entry: *mut ibv_gid_entry, flags: u32, entry_size: usize) -> c_int;
        /// 1 where the device delivers the bytes of one operation in order (rdma-core 39).
        query_qp_data_in_order = "ibv_query_qp_data_in_order": fn(qp: *mut ibv_qp, op: ibv_wr_opcode, flags: u32) -> c_int;
        /// Changes what a region covers, its domain or its access; 0, or an
        /// [`ibv_rereg_mr_err_code`].
        rereg_mr = "ibv_rereg_mr": fn(mr: *mut ibv_mr, flags: c_int, pd: *mut ibv_pd, addr: *mut c_void, length: usize, access: c_int) -> c_int;
    }
}

/// A [`Verbs`] that unsafe code has vouched for: safe code passes it around.
#[derive(Clone, Copy, Debug)]
pub struct Table(&'static Verbs);

impl Table {
    /// Vouches for a table.
    ///
    /// # Safety
    /// Every function does what its manual page says for arguments that obey it;
    /// in particular it writes only where it was asked to, what it returns stays
    /// valid until it is destroyed, and all may be called from any thread, by several
    /// at once on one object.
    pub const unsafe fn new(verbs: &'static Verbs) -> Table {
        Table(verbs)
    }

    /// Reports whether both are the same provider.
    #[must_use]
    pub fn is_same(&self, other: &Table) -> bool {
        core::ptr::eq(self.0, other.0)
    }
}

impl core::ops::Deref for Table {
    type Target = Verbs;

    #[inline]
    fn deref(&self) -> &Verbs {
        self.0
    }
}

impl core::fmt::Debug for Verbs {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Verbs").finish_non_exhaustive()
    }
}
