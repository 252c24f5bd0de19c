//! Memory windows: requests about them, and what becomes of these.

use super::*;

pub const WRITE: u32 = ibv_access_flags::IBV_ACCESS_REMOTE_WRITE.0;
pub const READ: u32 = ibv_access_flags::IBV_ACCESS_REMOTE_READ.0;
pub const ATOMIC: u32 = ibv_access_flags::IBV_ACCESS_REMOTE_ATOMIC.0;
pub const ZERO_BASED: u32 = ibv_access_flags::IBV_ACCESS_ZERO_BASED.0;
/// Access that a region needs for windows to be bound to it; peers reach it by them only.
pub const BINDABLE: u32 = 1 | ibv_access_flags::IBV_ACCESS_MW_BIND.0;

pub const TYPE_1: ibv_mw_type = ibv_mw_type::IBV_MW_TYPE_1;
pub const TYPE_2: ibv_mw_type = ibv_mw_type::IBV_MW_TYPE_2;

pub fn alloc(pd: *mut ibv_pd, kind: ibv_mw_type) -> *mut ibv_mw {
    // SAFETY: the domain is alive.
    let mw = unsafe { ibv_alloc_mw(pd, kind) };
    assert!(!mw.is_null(), "alloc_mw: {}", errno());
    mw
}

pub fn dealloc(mw: *mut ibv_mw) {
    // SAFETY: the test is done with it.
    assert_eq!(unsafe { ibv_dealloc_mw(mw) }, 0);
}

/// The key that a window shows.
pub fn key_of(mw: *mut ibv_mw) -> u32 {
    // SAFETY: the window is alive.
    unsafe { (*mw).rkey }
}

/// Describes the bytes of a region that a window is to be bound to.
pub fn piece(mr: *mut ibv_mr, offset: u64, length: u64, access: u32) -> ibv_mw_bind_info {
    // SAFETY: the region is alive.
    let addr = unsafe { (*mr).addr as u64 + offset };
    ibv_mw_bind_info { mr, addr, length, mw_access_flags: access }
}

/// No memory.
pub fn nothing() -> ibv_mw_bind_info {
    ibv_mw_bind_info { mr: null_mut(), addr: 0, length: 0, mw_access_flags: 0 }
}

pub fn bind_wr(id: u64, mw: *mut ibv_mw, rkey: u32, bind_info: ibv_mw_bind_info) -> ibv_send_wr {
    let mut wr = send_wr(id, ibv_wr_opcode::IBV_WR_BIND_MW, &mut [], SIGNALED);
    wr.sg_list = null_mut();
    wr.__bindgen_anon_2.bind_mw = ibv_send_wr__bindgen_ty_4__bindgen_ty_1 { mw, rkey, bind_info };
    wr
}

/// A request that names a key to be invalidated: here, or with a message at the other end.
pub fn inv_wr(id: u64, opcode: ibv_wr_opcode, key: u32) -> ibv_send_wr {
    let mut wr = send_wr(id, opcode, &mut [], SIGNALED);
    wr.sg_list = null_mut();
    wr.__bindgen_anon_1.invalidate_rkey = key;
    wr
}

/// Posts a list; returns 0, or the errno.
pub fn post_list(qp: *mut ibv_qp, list: &mut [ibv_send_wr]) -> c_int {
    let first = list.as_mut_ptr();
    for i in 1..list.len() {
        list[i - 1].next = first.wrapping_add(i);
    }
    post_send(qp, &mut list[0])
}

impl QpPair {
    /// A pair whose second end has a region that windows can be bound to, instead of the plain one.
    pub fn bindable() -> QpPair {
        QpPair::new().with_bindable()
    }

    pub fn with_bindable(mut self) -> QpPair {
        self.net.dereg(self.mr[1]);
        let mut bytes = core::mem::take(&mut self.buf[1]);
        self.mr[1] = self.net.mr(&mut bytes, BINDABLE);
        self.buf[1] = bytes;
        self
    }

    /// Posts a request of an end, and returns the status of its completion.
    pub fn status(&self, end: usize, wr: &mut ibv_send_wr) -> &'static str {
        assert_eq!(post_send(self.qp[end], wr), 0);
        self.net.poll(self.cq[end], 1)[0].status
    }

    /// Binds a window to the second end's queue pair.
    pub fn bind(&self, mw: *mut ibv_mw, rkey: u32, to: ibv_mw_bind_info) -> &'static str {
        self.status(1, &mut bind_wr(1, mw, rkey, to))
    }

    /// Has the second end invalidate a key.
    pub fn local_inv(&self, key: u32) -> &'static str {
        self.status(1, &mut inv_wr(2, ibv_wr_opcode::IBV_WR_LOCAL_INV, key))
    }

    /// An operation of the first end on 8 bytes of the other's memory.
    pub fn rdma(&self, opcode: ibv_wr_opcode, remote_addr: u64, rkey: u32) -> &'static str {
        let mut sges = [sge(self.mr[0], 0, 8)];
        let mut wr = send_wr(3, opcode, &mut sges, SIGNALED);
        match opcode {
            ibv_wr_opcode::IBV_WR_ATOMIC_FETCH_AND_ADD => {
                let (compare_add, swap) = (5, 0);
                wr.wr.atomic = ibv_send_wr__bindgen_ty_2__bindgen_ty_2 {
                    remote_addr,
                    compare_add,
                    swap,
                    rkey,
                };
            }
            _ => wr.wr.rdma = ibv_send_wr__bindgen_ty_2__bindgen_ty_1 { remote_addr, rkey },
        }
        self.status(0, &mut wr)
    }

    pub fn write(&self, addr: u64, rkey: u32) -> &'static str {
        self.rdma(ibv_wr_opcode::IBV_WR_RDMA_WRITE, addr, rkey)
    }
}
