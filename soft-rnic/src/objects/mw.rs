//! Memory windows: what a program makes, and what it says about one in a work request.

use core::cell::UnsafeCell;
use core::ffi::c_int;
use core::sync::atomic::{AtomicU32, Ordering};
use std::sync::Arc;

use rustix::io::Errno;
use verbs_sys::*;

use crate::alloc;
use crate::check::checker::Object;
use crate::memory::keys::TAG;
use crate::objects::device::admit;
use crate::objects::mw_table::{BindRequest, NewMw};
use crate::objects::state::{Device, Pd};
use crate::queues::qp_state::QpTransport;
use crate::queues::wqe::{SqOp, Wqe};
use crate::{errno, limits};

/// A memory window.
#[repr(C)]
pub(crate) struct Mw {
    /// The program writes `rkey`, too.
    abi: UnsafeCell<ibv_mw>,
    pub(crate) pd: Arc<Pd>,
    pub(crate) is_type_2: bool,
    id: u64,
    /// Index of its slot in the table of keys, and the `handle` in its struct.
    pub(crate) index: u32,
    /// The key that it was made with.
    key: u32,
}

impl Mw {
    /// The object behind a caller's pointer.
    ///
    /// # Safety
    /// `mw` is NULL or a live window of ours.
    pub(crate) unsafe fn from_abi<'a>(mw: *mut ibv_mw) -> Result<&'a Mw, Errno> {
        // SAFETY: `mw` is NULL or a live window of ours (see # Safety).
        unsafe { mw.cast::<Mw>().as_ref() }.ok_or(errno::EINVAL)
    }

    /// Another key of a window of type 1.
    pub(crate) fn new_key(&self) -> Option<u32> {
        self.device().mrs.new_mw_key(self.index)
    }

    /// Puts the key where the program finds it.
    pub(crate) fn set_key(&self, key: u32) {
        // SAFETY: a field of the struct in its cell, which lives as long as the window; other
        // threads of the program may bind the window, too.
        let rkey = unsafe { AtomicU32::from_ptr(&raw mut (*self.abi.get()).rkey) };
        // Relaxed: the key guards no memory.
        rkey.store(key, Ordering::Relaxed);
    }

    fn device(&self) -> &Arc<Device> {
        &self.pd.context.device
    }
}

pub(crate) unsafe extern "C" fn alloc_mw(pd: *mut ibv_pd, kind: ibv_mw_type) -> *mut ibv_mw {
    // SAFETY: NULL, or a domain of ours.
    errno::pointer(unsafe { Pd::from_abi(pd) }.and_then(|pd| {
        if ![ibv_mw_type::IBV_MW_TYPE_1, ibv_mw_type::IBV_MW_TYPE_2].contains(&kind) {
            return Err(errno::EINVAL);
        }
        alloc::headroom()?;
        let device = &pd.context.device;
        let in_domain = pd.users.join()?;
        admit(&device.population.mws, limits::MAX_MW)?;
        let is_type_2 = kind == ibv_mw_type::IBV_MW_TYPE_2;
        let added = device.mrs.add_mw(pd.id, is_type_2);
        let NewMw { id, index, key } = added.inspect_err(|_| {
            device.population.mws.fetch_sub(1, Ordering::Relaxed);
        })?;
        in_domain.keep();
        let pd = pd.keep();
        pd.context.made(Object::MemoryWindow, 0);
        let abi = ibv_mw {
            context: pd.context.as_abi(),
            pd: Arc::as_ptr(&pd).cast_mut().cast(),
            rkey: key,
            handle: index,
            type_: kind,
        };
        let abi = UnsafeCell::new(abi);
        Ok(Box::into_raw(Box::new(Mw { abi, pd, is_type_2, id, index, key })).cast())
    }))
}

/// A binding ends with its window: as with a region, accesses under the key are waited for, and
/// the window stays, unbound, if a process that can use it does not leave the memory.
pub(crate) unsafe extern "C" fn dealloc_mw(mw: *mut ibv_mw) -> c_int {
    // SAFETY: NULL, or a window that the caller gives back.
    errno::code(unsafe { Mw::named(mw) }.and_then(|object| {
        let device = object.device();
        if let Some(ending) = device.mrs.end_any(object.index, device.peers.as_ref()) {
            device.settle(&ending)?;
        }
        device.end_lookups();
        device.mrs.remove_mw(object.index)?;
        device.population.mws.fetch_sub(1, Ordering::Relaxed);
        object.pd.context.gone(Object::MemoryWindow, 0);
        object.pd.users.leave();
        // SAFETY: it was made by `alloc_mw`, and no table has it any more.
        drop(unsafe { Box::from_raw(mw.cast::<Mw>()) });
        Ok(())
    }))
}

/// Reports whether the send queue of a transport takes a request that is about a window.
///
/// # Safety
/// `wr` is valid.
#[cold]
pub(crate) unsafe fn takes_mw(transport: QpTransport, wr: &ibv_send_wr) -> bool {
    let is_connected = matches!(transport, QpTransport::Rc | QpTransport::Uc);
    match wr.opcode {
        // No other transport has such a packet but XRC, whose receiving end can bind nothing.
        ibv_wr_opcode::IBV_WR_SEND_WITH_INV => transport == QpTransport::Rc,
        // SAFETY: the union's member of this opcode.
        ibv_wr_opcode::IBV_WR_BIND_MW => unsafe {
            is_connected && !wr.__bindgen_anon_2.bind_mw.mw.is_null()
        },
        _ => is_connected,
    }
}

impl Wqe {
    /// Takes over the fields of a request about windows: the key to be invalidated, or what
    /// [`bind`](Self::bind) gives back.
    ///
    /// # Safety
    /// As [`new`](Self::new); it was admitted.
    #[cold]
    pub(crate) unsafe fn take_mw(&mut self, wr: &ibv_send_wr) {
        match self.op {
            SqOp::BindMw => {}
            SqOp::LocalInv => {
                // SAFETY: an integer.
                self.rkey = unsafe { wr.__bindgen_anon_1.invalidate_rkey };
                return;
            }
            _ => {
                self.invalidates = true;
                return;
            }
        }
        // SAFETY: the union's member of this opcode; the window, and a region, are the caller's.
        let (bind, mw, mr) = unsafe {
            let bind = wr.__bindgen_anon_2.bind_mw;
            (bind, Mw::from_abi(bind.mw), bind.bind_info.mr.as_ref())
        };
        let Ok(mw) = mw else { return };
        let info = bind.bind_info;
        let access = info.mw_access_flags & !ACCESS_OPTIONAL_RANGE;
        self.rkey = mw.key_of(bind.rkey);
        if mw.is_type_2 {
            // The program finds the key that it has chosen the tag of, as with irdma.
            mw.set_key(self.rkey);
        }
        self.imm = Some(mr.map_or(0, |mr| mr.lkey));
        (self.remote_addr, self.compare_add, self.swap) = (info.addr, info.length, mw.id);
        // Others than these are none of a window's.
        self.access = u8::try_from(access).unwrap_or(u8::MAX);
    }

    /// The fields of a request to bind a window.
    pub(crate) fn bind(&self) -> BindRequest {
        BindRequest {
            id: self.swap,
            key: self.rkey,
            lkey: self.imm.unwrap_or(0),
            addr: self.remote_addr,
            length: self.compare_add,
            access: self.access.into(),
        }
    }
}

impl Mw {
    /// The key that a request asks for: of type 2, the consumer chooses the tag.
    fn key_of(&self, rkey: u32) -> u32 {
        if self.is_type_2 { self.key & !TAG | rkey & TAG } else { rkey }
    }
}
