//! The end of a memory window's binding waits for what is under way under its key.

use std::sync::mpsc::channel;

use super::*;
use crate::memory::mr_table::{LOCAL_WRITE, MW_BIND, MrTable, REMOTE_WRITE};
use crate::memory::mws::BindingEnd;
use crate::memory::span::SpanBuf;
use crate::objects::mr::MrAttr;
use crate::objects::mw_table::{Asker, BindRequest};
use crate::objects::state::Device;

/// A queue pair in RTS, with a window bound to it; and two others, which do nothing: the first one
/// is its peer.
pub(super) struct Bound {
    pub(super) v: Table,
    pub(super) context: *mut ibv_context,
    pub(super) pd: *mut ibv_pd,
    cq: *mut ibv_cq,
    pub(super) qp: [*mut ibv_qp; 3],
    pub(super) mr: *mut ibv_mr,
    pub(super) mw: *mut ibv_mw,
    memory: Box<[u8; 64]>,
    /// One of its own: on the other one, other tests have processes in its memory.
    pub(super) device: Arc<Device>,
}

// SAFETY: verbs may be called from any thread.
unsafe impl Send for Bound {}
// SAFETY: verbs may be called from any thread, and from several at once.
unsafe impl Sync for Bound {}

impl Bound {
    fn new() -> Bound {
        Bound::with(ibv_qp_type::IBV_QPT_RC, ibv_mw_type::IBV_MW_TYPE_2, None)
    }

    /// Connected to that queue pair of this peer, or to its other one.
    pub(super) fn with(kind: ibv_qp_type, window: ibv_mw_type, peer: Option<&Wild>) -> Bound {
        let v = crate::table();
        let mut memory = Box::new([0_u8; 64]);
        // SAFETY: the verbs are used as their manual pages say.
        unsafe {
            let device = device_of_its_own(1 << 50);
            if let Some(peer) = peer {
                meet(&device, peer);
            }
            let context = (v.open_device)(device.as_abi());
            let pd = (v.alloc_pd)(context);
            let cq = (v.create_cq)(context, 16, null_mut(), null_mut(), 0);
            let qp = [(); 3].map(|()| {
                let mut attr: ibv_qp_init_attr = core::mem::zeroed();
                (attr.send_cq, attr.recv_cq) = (cq, cq);
                attr.cap.max_send_wr = 4;
                attr.qp_type = kind;
                (v.create_qp)(pd, &mut attr)
            });
            let access = (LOCAL_WRITE | MW_BIND) as i32;
            let mr = (v.reg_mr)(pd, memory.as_mut_ptr().cast(), 64, access);
            let mw = ibv_alloc_mw(pd, window);
            let bound = Bound { v, context, pd, cq, qp, mr, mw, memory, device };
            bound.connect(kind, peer.map(|peer| far(peer.pair.slot)));
            bound.bind();
            bound
        }
    }

    /// Connects the first queue pair to another one: it never sends anything there.
    fn connect(&self, kind: ibv_qp_type, to: Option<u32>) {
        use ibv_qp_attr_mask as M;
        // SAFETY: the queue pairs are alive.
        unsafe {
            let mut attr = ibv_qp_attr { port_num: 1, ..ibv_qp_attr::default() };
            (attr.dest_qp_num, attr.path_mtu) =
                (to.unwrap_or((*self.qp[1]).qp_num), ibv_mtu::IBV_MTU_4096);
            (attr.ah_attr.is_global, attr.ah_attr.port_num) = (1, 1);
            attr.ah_attr.grh.dgid.raw = self.device.gid();
            let init = M::IBV_QP_PKEY_INDEX | M::IBV_QP_PORT | M::IBV_QP_ACCESS_FLAGS;
            let mut rtr = M::IBV_QP_AV | M::IBV_QP_PATH_MTU | M::IBV_QP_DEST_QPN | M::IBV_QP_RQ_PSN;
            let mut rts = M::IBV_QP_SQ_PSN;
            if kind == ibv_qp_type::IBV_QPT_RC {
                rtr = rtr | M::IBV_QP_MAX_DEST_RD_ATOMIC | M::IBV_QP_MIN_RNR_TIMER;
                rts = rts | M::IBV_QP_TIMEOUT | M::IBV_QP_RETRY_CNT;
                rts = rts | M::IBV_QP_RNR_RETRY | M::IBV_QP_MAX_QP_RD_ATOMIC;
            }
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

    pub(super) fn key(&self) -> u32 {
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

    pub(super) fn bind(&self) {
        self.post_bind();
        assert_eq!(self.poll(), Some(SUCCESS));
    }

    fn post_bind(&self) {
        let (mr, addr) = (self.mr, self.memory.as_ptr() as u64);
        let bind_info = ibv_mw_bind_info { mr, addr, length: 64, mw_access_flags: 2 };
        // SAFETY: the window is alive.
        if unsafe { (*self.mw).type_ } == ibv_mw_type::IBV_MW_TYPE_1 {
            let send_flags = ibv_send_flags::IBV_SEND_SIGNALED.0;
            let mut bind = ibv_mw_bind { wr_id: 0, send_flags, bind_info };
            // SAFETY: the window and the queue pair are alive.
            assert_eq!(unsafe { ibv_bind_mw(self.qp[0], self.mw, &mut bind) }, 0);
            return;
        }
        self.post(|wr| {
            wr.opcode = ibv_wr_opcode::IBV_WR_BIND_MW;
            wr.__bindgen_anon_2.bind_mw = ibv_send_wr__bindgen_ty_4__bindgen_ty_1 {
                mw: self.mw,
                rkey: self.key(),
                bind_info,
            };
        });
    }

    pub(super) fn invalidate(&self) {
        self.post(|wr| {
            wr.opcode = ibv_wr_opcode::IBV_WR_LOCAL_INV;
            wr.__bindgen_anon_1.invalidate_rkey = self.key();
        });
    }

    pub(super) fn poll(&self) -> Option<ibv_wc_status> {
        let mut wc = ibv_wc::default();
        // SAFETY: the queue is alive; there is room for one.
        let n = unsafe { ibv_poll_cq(self.cq, 1, &mut wc) };
        (n > 0).then_some(wc.status)
    }

    /// Reports whether the window's key is valid.
    pub(super) fn is_valid(&self) -> bool {
        let slot = self.device.mrs.slot(self.key()).unwrap();
        slot.key.load(Ordering::Acquire) == self.key()
    }

    /// One of its queue pairs.
    pub(super) fn object(&self, which: usize) -> Arc<Qp> {
        // SAFETY: the queue pair is alive.
        unsafe { Qp::from_abi(self.qp[which]) }.unwrap().keep()
    }

    /// Ends the binding, as no request does.
    pub(super) fn end(&self) -> BindingEnd {
        // SAFETY: the window is alive.
        let index = unsafe { (*self.mw).handle };
        self.device.mrs.end_any(index, self.device.peers.as_ref()).unwrap()
    }

    pub(super) fn close(self) {
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

/// Has this device know a peer, but not what it sends.
pub(super) fn meet(device: &Device, peer: &Wild) {
    let pairs = &device.peers.as_ref().unwrap().pairs;
    pairs.write().insert(peer.pair.slot, Arc::clone(&peer.pair));
}

/// Has another thread do something about the bound window, while an access is under way that
/// reaches this one of its queue pairs; it is over only after that.
fn waits_of(bound: Bound, reached: usize, act: impl FnOnce(&Bound) + Send) -> Bound {
    let (done, reached) = (AtomicBool::new(false), bound.object(reached));
    let was = bound.key();
    let is_valid = || bound.device.mrs.slot(was).unwrap().key.load(Ordering::Acquire) == was;
    std::thread::scope(|scope| {
        // As an access to it holds it.
        let access = reached.responder.lock();
        let (bound, done) = (&bound, &done);
        let thread = scope.spawn(move || {
            act(bound);
            done.store(true, Ordering::Release);
        });
        while is_valid() && !thread.is_finished() {
            host::thread::yield_now();
        }
        // It has all the time that it wants.
        for _ in 0..10_000 {
            host::thread::yield_now();
        }
        assert_eq!((is_valid(), done.load(Ordering::Acquire)), (false, false));
        assert_eq!(bound.poll(), None);
        drop(access);
        thread.join().unwrap();
    });
    bound
}

fn waits(act: impl FnOnce(&Bound) + Send) -> Bound {
    waits_of(Bound::new(), 0, act)
}

#[test]
fn an_invalidation_waits_for_an_access_that_is_under_way() {
    let bound = waits(Bound::invalidate);
    assert_eq!(bound.poll(), Some(SUCCESS));
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

#[test]
fn a_binding_waits_for_the_end_of_the_one_before() {
    let bound = waits(|bound| {
        bound.end();
        bound.bind();
    });
    assert!(bound.is_valid());
    bound.close();
}

/// Every peer of a queue pair of its domain can use a window of type 1.
#[test]
fn a_window_of_type_1_waits_for_all_of_its_domain() {
    let (kind, window) = (ibv_qp_type::IBV_QPT_RC, ibv_mw_type::IBV_MW_TYPE_1);
    let bound = waits_of(Bound::with(kind, window, None), 2, |bound| bound.bind());
    assert!(bound.is_valid());
    bound.close();
}

/// A thread that waits for memory of another process holds a send queue for as long as that process
/// likes.
#[test]
fn a_binding_that_ends_waits_for_no_other_queue_pair() {
    let (bound, (report, reports)) = (Bound::new(), channel());
    let other = bound.object(1);
    let done = std::thread::scope(|scope| {
        let held = other.sq.lock();
        let bound = &bound;
        scope.spawn(move || {
            bound.invalidate();
            let _ = report.send(bound.poll());
        });
        let done = reports.recv_timeout(Duration::from_secs(60));
        drop(held);
        done
    });
    assert_eq!(done, Ok(Some(SUCCESS)));
    bound.close();
}

/// The slot of a window that goes can be a region's, which threads look at without a lock but that
/// of their send queue. One that waits for another process's memory looks at nothing.
#[test]
fn deallocating_a_window_waits_for_look_ups_only() {
    let (mut bound, (report, reports)) = (Bound::new(), channel());
    let other = bound.object(1);
    let gone = std::thread::scope(|scope| {
        let held = other.sq.lock();
        let bound = &bound;
        scope.spawn(move || {
            // SAFETY: the window is alive.
            let _ = report.send(unsafe { ibv_dealloc_mw(bound.mw) });
        });
        // It has all the time that it wants.
        for _ in 0..10_000 {
            host::thread::yield_now();
        }
        let early = reports.try_recv().ok();
        let section = other.enter_blocking();
        let gone = reports.recv_timeout(Duration::from_secs(60));
        drop(held);
        drop(section);
        (early, gone)
    });
    assert_eq!(gone, (None, Ok(0)));
    // SAFETY: the domain is alive.
    bound.mw = unsafe { ibv_alloc_mw(bound.pd, ibv_mw_type::IBV_MW_TYPE_2) };
    bound.close();
}

/// A queue pair that may not use a window is not waited for. If it looks the key up while the
/// window is bound anew, it finds one of the bindings, or none.
#[test]
fn a_look_up_finds_no_half_of_a_binding() {
    const BASE: u64 = 0x10_0000;
    let mrs = MrTable::default();
    let access = LOCAL_WRITE | REMOTE_WRITE | MW_BIND;
    let region = MrAttr { pd: 1, addr: BASE, iova: BASE, length: 1 << 20, access };
    let lkey = mrs.insert(1, &region, None).unwrap();
    let new = mrs.add_mw(1, true).unwrap();
    let asker = Asker { qpn: 5, pd: 1, peer: 0 };
    let (id, key, access) = (new.id, new.key, REMOTE_WRITE);
    let short = BindRequest { id, key, lkey, addr: BASE, length: 64, access };
    let long = BindRequest { addr: BASE + (64 << 10), length: 64 << 10, ..short };
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for bind in [&short, &long].into_iter().cycle() {
                assert_eq!(mrs.bind(bind, asker, None), Ok(None));
                let ending = mrs.end_bound(key, 5, None).unwrap();
                mrs.set_settled(&ending);
                if is_over.load(Ordering::Relaxed) {
                    return;
                }
            }
        });
        let _over = SetOnDrop(&is_over);
        // SAFETY: nothing is accessed.
        let room = unsafe { SpanBuf::new() };
        let look = |addr, len| mrs.check_mw(room.hold(), key, (1, 5), (addr, len), access);
        let (mut found, mut wrong) = (0, 0);
        while found < 2_000_000 && wrong == 0 {
            found += u32::from(look(BASE, 64).is_some());
            // It would lie in the short one, if that were as long as the long one.
            wrong += u32::from(look(BASE + 1_000, 64).is_some());
        }
        assert_eq!(wrong, 0);
    });
}

/// As above, in another process.
#[test]
fn a_look_up_in_the_directory_finds_no_half_of_a_registration() {
    let directory: Mapped<ProcessDirectory> = Mapped::create("test").unwrap();
    let of = |n: u64| {
        let mw = Some(PublishedMw { pd: 1, qpn: n as u32, region: n as u32 });
        PublishedRegion { iova: n, length: n, addr: n, mw, ..PublishedRegion::default() }
    };
    let (is_over, both) = (AtomicBool::new(false), [of(1), of(2)]);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for published in both.iter().cycle() {
                directory.publish(7, published);
                directory.withdraw(7);
                if is_over.load(Ordering::Relaxed) {
                    return;
                }
            }
        });
        let _over = SetOnDrop(&is_over);
        let (mut found, mut wrong) = (0, None);
        while found < 20_000 && wrong.is_none() {
            let seen = directory.find(7).map(|seen| PublishedRegion { version: 0, ..seen });
            found += u32::from(seen.is_some());
            wrong = seen.filter(|seen| !both.contains(seen));
        }
        assert_eq!(wrong, None);
    });
}
