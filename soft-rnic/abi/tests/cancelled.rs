//! `pthread_cancel`: threads that wait for events can be cancelled, and a pending cancellation ends
//! no other call.
//!
//! Only on soft0: it is about the symbols in front of soft0.

mod common;

use core::ffi::{c_char, c_int, c_void};
use core::ptr::null_mut;
use std::sync::atomic::{AtomicI32, Ordering};

use libloading::os::unix::Library;
use verbs_sys::*;

// As libc has them: they may unwind.
unsafe extern "C-unwind" {
    fn pthread_cancel(thread: libc::pthread_t) -> c_int;
    fn pthread_testcancel();
}

type Start = extern "C" fn(*mut c_void) -> *mut c_void;
type StartUnwind = unsafe extern "C-unwind" fn(*mut c_void) -> *mut c_void;

/// Body of a test's thread; it has nothing to drop where it may be cancelled.
type Body<'b> = &'b dyn Fn();

/// The thread's number, once it runs.
static NUMBER: AtomicI32 = AtomicI32::new(0);

unsafe extern "C-unwind" fn with_pending_cancellation(body: *mut c_void) -> *mut c_void {
    // SAFETY: `played` lends the body until this thread has ended; this frame has nothing to drop.
    unsafe {
        assert_eq!(pthread_cancel(libc::pthread_self()), 0);
        (*body.cast::<Body<'_>>())();
        pthread_testcancel();
    }
    null_mut()
}

unsafe extern "C-unwind" fn plainly(body: *mut c_void) -> *mut c_void {
    // SAFETY: as in `with_pending_cancellation`.
    unsafe {
        NUMBER.store(libc::gettid(), Ordering::Release);
        (*body.cast::<Body<'_>>())();
    }
    null_mut()
}

/// Runs a thread from `start`, and `then` beside it; returns true if it was cancelled.
fn played(start: StartUnwind, body: Body<'_>, then: impl FnOnce(libc::pthread_t)) -> bool {
    let (mut thread, mut result) = (0, null_mut());
    // SAFETY: the ABIs differ in unwinding only, which glibc does itself at the end of a cancelled
    // thread; the body outlives the thread, which is joined.
    unsafe {
        let start = core::mem::transmute::<StartUnwind, Start>(start);
        let body = (&raw const body).cast_mut().cast();
        assert_eq!(libc::pthread_create(&raw mut thread, core::ptr::null(), start, body), 0);
        then(thread);
        assert_eq!(libc::pthread_join(thread, &raw mut result), 0);
    }
    // PTHREAD_CANCELED
    result.addr() == usize::MAX
}

fn cancel(thread: libc::pthread_t) {
    // SAFETY: it was not joined yet.
    assert_eq!(unsafe { pthread_cancel(thread) }, 0);
}

/// Waits until the other thread sleeps in a system call.
fn wait_for_sleep() {
    loop {
        let number = NUMBER.load(Ordering::Acquire);
        let stat = std::fs::read_to_string(format!("/proc/self/task/{number}/stat"));
        // The state is behind the name, in parentheses.
        if stat.is_ok_and(|stat| stat.rsplit(')').next().is_some_and(|rest| rest.starts_with(" S")))
        {
            return;
        }
        std::thread::yield_now();
    }
}

/// The functions of the library that the tests call.
struct Verbs(Library);

macro_rules! verbs {
    ($($name:ident: $abi:literal fn($($arg:ident: $ty:ty),*) -> $ret:ty;)*) => {
        impl Verbs { $(
            fn $name(&self, $($arg: $ty),*) -> $ret {
                // SAFETY: the symbol has this type; the tests give it live objects.
                unsafe {
                    let name = concat!("ibv_", stringify!($name));
                    let symbol = self.0.get::<unsafe extern $abi fn($($ty),*) -> $ret>(name.as_bytes());
                    (*symbol.unwrap_unchecked())($($arg),*)
                }
            }
        )* }
    };
}

verbs! {
    get_device_list: "C" fn(n: *mut c_int) -> *mut *mut ibv_device;
    free_device_list: "C" fn(list: *mut *mut ibv_device) -> ();
    open_device: "C" fn(device: *mut ibv_device) -> *mut ibv_context;
    import_device: "C" fn(fd: c_int) -> *mut ibv_context;
    close_device: "C" fn(context: *mut ibv_context) -> c_int;
    alloc_pd: "C" fn(context: *mut ibv_context) -> *mut ibv_pd;
    dealloc_pd: "C" fn(pd: *mut ibv_pd) -> c_int;
    reg_mr: "C" fn(pd: *mut ibv_pd, at: *mut c_void, len: usize, access: c_int) -> *mut ibv_mr;
    dereg_mr: "C" fn(mr: *mut ibv_mr) -> c_int;
    create_comp_channel: "C" fn(context: *mut ibv_context) -> *mut ibv_comp_channel;
    destroy_comp_channel: "C" fn(channel: *mut ibv_comp_channel) -> c_int;
    create_cq: "C" fn(
        context: *mut ibv_context, cqe: c_int, user: *mut c_void, channel: *mut ibv_comp_channel,
        vector: c_int
    ) -> *mut ibv_cq;
    resize_cq: "C" fn(cq: *mut ibv_cq, cqe: c_int) -> c_int;
    destroy_cq: "C" fn(cq: *mut ibv_cq) -> c_int;
    ack_cq_events: "C" fn(cq: *mut ibv_cq, n: u32) -> ();
    create_qp: "C" fn(pd: *mut ibv_pd, attr: *mut ibv_qp_init_attr) -> *mut ibv_qp;
    modify_qp: "C" fn(qp: *mut ibv_qp, attr: *mut ibv_qp_attr, mask: c_int) -> c_int;
    destroy_qp: "C" fn(qp: *mut ibv_qp) -> c_int;
    read_sysfs_file: "C" fn(
        dir: *const c_char, file: *const c_char, into: *mut c_char, len: usize
    ) -> c_int;
    get_cq_event: "C-unwind" fn(
        channel: *mut ibv_comp_channel, cq: *mut *mut ibv_cq, user: *mut *mut c_void
    ) -> c_int;
    get_async_event: "C-unwind" fn(
        context: *mut ibv_context, event: *mut ibv_async_event
    ) -> c_int;
}

/// A context of soft0, and what the verbs of the test are about.
struct Rig {
    v: Verbs,
    context: *mut ibv_context,
    pd: *mut ibv_pd,
    channel: *mut ibv_comp_channel,
    cq: *mut ibv_cq,
}

impl Rig {
    fn new() -> Rig {
        // SAFETY: the library has no initialisers with preconditions.
        let v = Verbs(unsafe { Library::new(common::library()) }.unwrap());
        let list = v.get_device_list(null_mut());
        // SAFETY: the list has a device, soft0.
        let context = v.open_device(unsafe { *list });
        v.free_device_list(list);
        let (pd, channel) = (v.alloc_pd(context), v.create_comp_channel(context));
        let cq = v.create_cq(context, 16, null_mut(), channel, 0);
        assert!(!pd.is_null() && !channel.is_null() && !cq.is_null());
        Rig { v, context, pd, channel, cq }
    }

    fn queue_pair(&self) -> *mut ibv_qp {
        let cap = ibv_qp_cap { max_send_wr: 4, max_recv_wr: 4, max_send_sge: 1, ..zeroed() };
        let mut attr = ibv_qp_init_attr {
            send_cq: self.cq,
            recv_cq: self.cq,
            cap,
            qp_type: ibv_qp_type::IBV_QPT_RC,
            ..zeroed()
        };
        self.v.create_qp(self.pd, &raw mut attr)
    }

    /// To a state that needs nothing but what INIT needs.
    fn to(&self, qp: *mut ibv_qp, qp_state: ibv_qp_state) {
        use ibv_qp_attr_mask as M;
        let mut attr = ibv_qp_attr { qp_state, port_num: 1, ..zeroed() };
        let mask = match qp_state {
            ibv_qp_state::IBV_QPS_INIT => {
                M::IBV_QP_STATE | M::IBV_QP_PKEY_INDEX | M::IBV_QP_PORT | M::IBV_QP_ACCESS_FLAGS
            }
            _ => M::IBV_QP_STATE,
        };
        assert_eq!(self.v.modify_qp(qp, &raw mut attr, mask.0.cast_signed()), 0);
    }

    /// A completion with an event: a receive request that is flushed.
    fn cause_event(&self, qp: *mut ibv_qp) {
        // SAFETY: the queue and the queue pair are alive; a request without memory.
        unsafe {
            assert_eq!(ibv_req_notify_cq(self.cq, 0), 0);
            let mut wr: ibv_recv_wr = zeroed();
            assert_eq!(ibv_post_recv(qp, &raw mut wr, &mut null_mut()), 0);
        }
    }

    /// The next event of the channel, acknowledged.
    fn take_event(&self) {
        let (mut cq, mut user) = (null_mut(), null_mut());
        assert_eq!(self.v.get_cq_event(self.channel, &raw mut cq, &raw mut user), 0);
        assert_eq!(cq, self.cq);
        self.v.ack_cq_events(cq, 1);
    }

    fn close(self) {
        assert_eq!(self.v.destroy_cq(self.cq), 0);
        assert_eq!(self.v.destroy_comp_channel(self.channel), 0);
        assert_eq!(self.v.dealloc_pd(self.pd), 0);
        assert_eq!(self.v.close_device(self.context), 0);
    }
}

fn zeroed<T>() -> T {
    // SAFETY: the verbs' structs are plain values, of which zeroes are valid ones.
    unsafe { core::mem::zeroed() }
}

#[test]
fn a_pending_cancellation_ends_no_verb() {
    let rig = Rig::new();
    let v = &rig.v;
    let qp = rig.queue_pair();
    let bodies: &[(&str, Body<'_>)] = &[
        ("devices", &|| v.free_device_list(v.get_device_list(null_mut()))),
        ("contexts", &|| {
            let list = v.get_device_list(null_mut());
            // SAFETY: the list has a device.
            let context = v.open_device(unsafe { *list });
            // SAFETY: the context is open; its descriptor is duplicated for the import.
            let imported = v.import_device(unsafe { libc::dup((*context).cmd_fd) });
            v.close_device(imported);
            v.close_device(context);
            v.free_device_list(list);
        }),
        ("channels", &|| _ = v.destroy_comp_channel(v.create_comp_channel(rig.context))),
        ("domains", &|| _ = v.dealloc_pd(v.alloc_pd(rig.context))),
        ("completion queues", &|| {
            let cq = v.create_cq(rig.context, 16, null_mut(), rig.channel, 0);
            v.resize_cq(cq, 64);
            v.destroy_cq(cq);
        }),
        ("regions", &|| {
            static BYTES: [u8; 64] = [0; 64];
            _ = v.dereg_mr(v.reg_mr(rig.pd, BYTES.as_ptr().cast_mut().cast(), 64, 0));
        }),
        ("queue pairs", &|| {
            let qp = rig.queue_pair();
            rig.to(qp, ibv_qp_state::IBV_QPS_INIT);
            rig.to(qp, ibv_qp_state::IBV_QPS_RESET);
            v.destroy_qp(qp);
        }),
        // SAFETY: the domain is alive, and the window is freed.
        ("operations", &|| unsafe {
            _ = ibv_dealloc_mw(ibv_alloc_mw(rig.pd, ibv_mw_type::IBV_MW_TYPE_1));
        }),
        // SAFETY: the queue is alive; a completion is zeroes.
        ("the data path", &|| unsafe {
            rig.to(qp, ibv_qp_state::IBV_QPS_INIT);
            rig.to(qp, ibv_qp_state::IBV_QPS_ERR);
            rig.cause_event(qp);
            let mut wc: ibv_wc = zeroed();
            assert_eq!(ibv_poll_cq(rig.cq, 1, &raw mut wc), 1);
        }),
        ("files", &|| {
            let mut into = [0; 64];
            v.read_sysfs_file(c"/proc/self".as_ptr(), c"comm".as_ptr(), into.as_mut_ptr(), 64);
        }),
    ];
    for (name, body) in bodies {
        assert!(played(with_pending_cancellation, *body, |_| ()), "{name}");
    }
    rig.take_event();
    assert_eq!(rig.v.destroy_qp(qp), 0);
    rig.close();
}

#[test]
fn a_wait_for_an_event_is_a_cancellation_point() {
    let rig = Rig::new();
    let qp = rig.queue_pair();
    rig.to(qp, ibv_qp_state::IBV_QPS_INIT);
    rig.to(qp, ibv_qp_state::IBV_QPS_ERR);
    let waits_for_completion = || {
        let (mut cq, mut user) = (null_mut(), null_mut());
        _ = rig.v.get_cq_event(rig.channel, &raw mut cq, &raw mut user);
    };
    let waits_for_async = || {
        let mut event: ibv_async_event = zeroed();
        _ = rig.v.get_async_event(rig.context, &raw mut event);
    };
    let bodies: [Body<'_>; 2] = [&waits_for_completion, &waits_for_async];
    for body in bodies {
        NUMBER.store(0, Ordering::Relaxed);
        assert!(played(plainly, body, |thread| {
            wait_for_sleep();
            cancel(thread);
        }));
    }
    // With a cancellation pending it acts at once, also where there is an event, and the event
    // stays.
    rig.cause_event(qp);
    assert!(played(with_pending_cancellation, &waits_for_completion, |_| ()));
    rig.take_event();
    // A thread that is not cancelled gets its event.
    NUMBER.store(0, Ordering::Relaxed);
    assert!(!played(plainly, &|| rig.take_event(), |_| {
        wait_for_sleep();
        rig.cause_event(qp);
    }));
    assert_eq!(rig.v.destroy_qp(qp), 0);
    rig.close();
}

#[test]
fn a_thread_that_disables_cancellation_stays() {
    // The verbs restore the state that they found.
    unsafe extern "C" {
        fn pthread_setcancelstate(state: c_int, old: *mut c_int) -> c_int;
    }
    const DISABLE: c_int = 1;
    let rig = Rig::new();
    let body = || {
        let mut before = 0;
        // SAFETY: `DISABLE` is a state that exists, and `before` lives during the call.
        unsafe { pthread_setcancelstate(DISABLE, &raw mut before) };
        _ = rig.v.dealloc_pd(rig.v.alloc_pd(rig.context));
        let mut then = 0;
        // SAFETY: `DISABLE` is a state that exists, and `then` lives during the call.
        unsafe { pthread_setcancelstate(DISABLE, &raw mut then) };
        assert_eq!((before, then), (0, DISABLE));
    };
    assert!(!played(with_pending_cancellation, &body, |_| ()));
    rig.close();
}
