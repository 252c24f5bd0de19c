//! The end of a memory window's binding waits for what is under way under its key.

use super::*;
use crate::objects::mr_table::{LOCAL_WRITE, MW_BIND};
use crate::objects::state::{Device, Kind};

/// A queue pair in RTS, with a window of type 2 bound to it; and another one, which does nothing.
struct Bound {
    v: Table,
    context: *mut ibv_context,
    pd: *mut ibv_pd,
    cq: *mut ibv_cq,
    qp: [*mut ibv_qp; 2],
    mr: *mut ibv_mr,
    mw: *mut ibv_mw,
    memory: Box<[u8; 64]>,
    /// One of its own: on the other one, other tests have processes in its memory.
    device: Arc<Device>,
}

// SAFETY: verbs may be called from any thread.
unsafe impl Send for Bound {}
// SAFETY: as above.
unsafe impl Sync for Bound {}

impl Bound {
    fn new() -> Bound {
        let v = crate::table();
        let mut memory = Box::new([0_u8; 64]);
        // SAFETY: the verbs are used as their manual pages say.
        unsafe {
            let device = Device::new("test", 1 << 50, Kind::Prompt);
            let context = (v.open_device)(device.as_abi());
            let pd = (v.alloc_pd)(context);
            let cq = (v.create_cq)(context, 16, null_mut(), null_mut(), 0);
            let qp = [(); 2].map(|()| {
                let mut attr: ibv_qp_init_attr = core::mem::zeroed();
                (attr.send_cq, attr.recv_cq) = (cq, cq);
                attr.cap.max_send_wr = 4;
                attr.qp_type = ibv_qp_type::IBV_QPT_RC;
                (v.create_qp)(pd, &mut attr)
            });
            let access = (LOCAL_WRITE | MW_BIND) as i32;
            let mr = (v.reg_mr)(pd, memory.as_mut_ptr().cast(), 64, access);
            let mw = ibv_alloc_mw(pd, ibv_mw_type::IBV_MW_TYPE_2);
            let bound = Bound { v, context, pd, cq, qp, mr, mw, memory, device };
            bound.connect();
            bound.bind();
            bound
        }
    }

    /// Connects the first queue pair to the second: it never sends anything there.
    fn connect(&self) {
        use ibv_qp_attr_mask as M;
        // SAFETY: the queue pairs are alive.
        unsafe {
            let mut attr = ibv_qp_attr { port_num: 1, ..ibv_qp_attr::default() };
            (attr.dest_qp_num, attr.path_mtu) = ((*self.qp[1]).qp_num, ibv_mtu::IBV_MTU_4096);
            (attr.ah_attr.is_global, attr.ah_attr.port_num) = (1, 1);
            attr.ah_attr.grh.dgid.raw = crate::limits::GID;
            let init = M::IBV_QP_PKEY_INDEX | M::IBV_QP_PORT | M::IBV_QP_ACCESS_FLAGS;
            let rtr = M::IBV_QP_AV
                | M::IBV_QP_PATH_MTU
                | M::IBV_QP_DEST_QPN
                | M::IBV_QP_RQ_PSN
                | M::IBV_QP_MAX_DEST_RD_ATOMIC
                | M::IBV_QP_MIN_RNR_TIMER;
            let rts = M::IBV_QP_TIMEOUT
                | M::IBV_QP_RETRY_CNT
                | M::IBV_QP_RNR_RETRY
                | M::IBV_QP_SQ_PSN
                | M::IBV_QP_MAX_QP_RD_ATOMIC;
            let steps = [
                (ibv_qp_state::IBV_QPS_INIT, init),
                (ibv_qp_state::IBV_QPS_RTR, rtr),
                (ibv_qp_state::IBV_QPS_RTS, rts),
            ];
            for (state, mask) in steps {
                attr.qp_state = state;
                let mask = (mask | M::IBV_QP_STATE).0 as i32;
                assert_eq!((self.v.modify_qp)(self.qp[0], &mut attr, mask), 0);
            }
        }
    }

    fn key(&self) -> u32 {
        // SAFETY: the window is alive.
        unsafe { (*self.mw).rkey }
    }

    fn post(&self, change: impl FnOnce(&mut ibv_send_wr)) {
        // SAFETY: zero is a valid value of every field; the queue pair is alive.
        unsafe {
            let mut wr: ibv_send_wr = core::mem::zeroed();
            wr.send_flags = ibv_send_flags::IBV_SEND_SIGNALED.0;
            change(&mut wr);
            assert_eq!(ibv_post_send(self.qp[0], &mut wr, &mut null_mut()), 0);
        }
    }

    fn bind(&self) {
        let (mr, addr) = (self.mr, self.memory.as_ptr() as u64);
        let bind_info = ibv_mw_bind_info { mr, addr, length: 64, mw_access_flags: 2 };
        self.post(|wr| {
            wr.opcode = ibv_wr_opcode::IBV_WR_BIND_MW;
            wr.__bindgen_anon_2.bind_mw = ibv_send_wr__bindgen_ty_4__bindgen_ty_1 {
                mw: self.mw,
                rkey: self.key(),
                bind_info,
            };
        });
        assert_eq!(self.poll(), Some(ibv_wc_status::IBV_WC_SUCCESS));
    }

    fn invalidate(&self) {
        self.post(|wr| {
            wr.opcode = ibv_wr_opcode::IBV_WR_LOCAL_INV;
            wr.__bindgen_anon_1.invalidate_rkey = self.key();
        });
    }

    fn poll(&self) -> Option<ibv_wc_status> {
        let mut wc = ibv_wc::default();
        // SAFETY: the queue is alive; there is room for one.
        let n = unsafe { ibv_poll_cq(self.cq, 1, &mut wc) };
        (n > 0).then_some(wc.status)
    }

    /// Whether the window's key is valid.
    fn is_valid(&self) -> bool {
        let slot = self.device.mrs.slot(self.key()).unwrap();
        slot.key.load(Ordering::Acquire) == self.key()
    }

    fn close(self) {
        let v = self.v;
        // SAFETY: the test is done with all of it.
        unsafe {
            assert_eq!(ibv_dealloc_mw(self.mw), 0);
            assert_eq!((v.dereg_mr)(self.mr), 0);
            self.qp.into_iter().for_each(|qp| assert_eq!((v.destroy_qp)(qp), 0));
            assert_eq!(((v.destroy_cq)(self.cq), (v.dealloc_pd)(self.pd)), (0, 0));
            (v.close_device)(self.context);
        }
    }
}

/// Has another thread do something about the bound window, while an access is under way; it is over
/// only after that.
fn waits(act: impl FnOnce(&Bound) + Send) -> Bound {
    let bound = Bound::new();
    let done = AtomicBool::new(false);
    // SAFETY: the queue pair is alive.
    let other = unsafe { Qp::from_abi(bound.qp[1]) }.unwrap();
    std::thread::scope(|scope| {
        // As an access by that queue pair holds it.
        let access = other.sq.lock();
        let (bound, done) = (&bound, &done);
        let thread = scope.spawn(move || {
            act(bound);
            done.store(true, Ordering::Release);
        });
        while bound.is_valid() && !thread.is_finished() {
            std::thread::yield_now();
        }
        // It has all the time that it wants.
        for _ in 0..10_000 {
            std::thread::yield_now();
        }
        assert_eq!((bound.is_valid(), done.load(Ordering::Acquire)), (false, false));
        assert_eq!(bound.poll(), None);
        drop(access);
        thread.join().unwrap();
    });
    bound
}

#[test]
fn an_invalidation_waits_for_an_access_that_is_under_way() {
    let bound = waits(Bound::invalidate);
    assert_eq!(bound.poll(), Some(ibv_wc_status::IBV_WC_SUCCESS));
    bound.bind();
    bound.close();
}

#[test]
fn a_window_that_goes_waits_too() {
    let mut bound = waits(|bound| {
        // SAFETY: the window is alive.
        assert_eq!(unsafe { ibv_dealloc_mw(bound.mw) }, 0);
    });
    // SAFETY: the domain is alive.
    bound.mw = unsafe { ibv_alloc_mw(bound.pd, ibv_mw_type::IBV_MW_TYPE_2) };
    bound.close();
}

/// A window that a message has invalidated is free when it is bound again: what looks the old
/// binding up does not find half of the new one.
#[test]
fn a_binding_waits_for_what_may_still_look_at_the_one_before() {
    let bound = waits(|bound| {
        let device = &bound.device;
        // SAFETY: the queue pair is alive.
        let num = unsafe { (*bound.qp[0]).qp_num };
        assert!(device.mrs.end_bound(bound.key(), num, device.peers.as_ref()).is_ok());
        bound.bind();
    });
    assert!(bound.is_valid());
    bound.close();
}

/// An access by another process that does not go on lets an invalidation fail, after a time, and
/// what is bound to the region wait no longer than that.
#[test]
fn a_process_that_stays_in_the_memory_is_not_waited_for_without_end() {
    let bound = Bound::new();
    let (process, number) = (Sleeper::new(), far(slot(60)));
    let peer = Wild::of(slot(60), process.pid());
    bound.device.peers.as_ref().unwrap().pairs.write().insert(slot(60), Arc::clone(&peer.pair));
    peer.directory.use_qp(number);
    let inside = peer.directory.qp(number).enter(false);
    bound.invalidate();
    assert_eq!(bound.poll(), Some(ibv_wc_status::IBV_WC_LOC_QP_OP_ERR));
    assert!(!bound.is_valid());
    // SAFETY: all are alive.
    let gone = unsafe { (ibv_dealloc_mw(bound.mw), (bound.v.dereg_mr)(bound.mr)) };
    assert_eq!(gone, (errno::EBUSY, errno::EBUSY));
    drop(inside);
    bound.close();
}
