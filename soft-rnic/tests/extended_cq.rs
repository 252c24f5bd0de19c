//! Extended completion queues, called as C programs do: by the functions of the queue.
//!
//! Not on apart, distant: a completion is there when its post returns.

mod common;

use std::time::SystemTime;

use common::*;
use verbs_sys::*;

const EINVAL: i32 = 22;
const ENOENT: i32 = 2;
const EOPNOTSUPP: i32 = 95;

const STANDARD: u64 = IBV_WC_STANDARD_FLAGS.0 as u64;
const TIME: u64 = ibv_create_cq_wc_flags::IBV_WC_EX_WITH_COMPLETION_TIMESTAMP.0 as u64;
const WALL: u64 = ibv_create_cq_wc_flags::IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK.0 as u64;
const SINGLE: u32 = ibv_create_cq_attr_flags::IBV_CREATE_CQ_ATTR_SINGLE_THREADED.0;
const IGNORE: u32 = ibv_create_cq_attr_flags::IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN.0;

/// Reports whether what is posted is done when the post returns, on both ends.
fn is_synchronous() -> bool {
    provider().1 == "soft0" && std::env::var_os("SOFT_RNIC_APART").is_none()
}

/// Attributes of a queue of 64 that knows `wc_flags`.
fn attr(wc_flags: u64) -> ibv_cq_init_attr_ex {
    ibv_cq_init_attr_ex { cqe: 64, wc_flags, ..ibv_cq_init_attr_ex::default() }
}

fn with_flags(flags: u32) -> ibv_cq_init_attr_ex {
    let comp_mask = ibv_cq_init_attr_mask::IBV_CQ_INIT_ATTR_MASK_FLAGS.0;
    ibv_cq_init_attr_ex { flags, comp_mask, ..attr(STANDARD) }
}

fn create(net: &Net, mut attr: ibv_cq_init_attr_ex) -> Result<*mut ibv_cq_ex, i32> {
    // SAFETY: the context is open.
    let cq = unsafe { later(net.ctx).create_cq_ex.unwrap()(net.ctx, &mut attr) };
    if cq.is_null() { Err(errno()) } else { Ok(cq) }
}

fn start(cq: *mut ibv_cq_ex) -> i32 {
    // SAFETY: the queue is alive.
    unsafe { (*cq).start_poll.unwrap()(cq, &mut ibv_poll_cq_attr::default()) }
}

fn next(cq: *mut ibv_cq_ex) -> i32 {
    // SAFETY: the queue is alive.
    unsafe { (*cq).next_poll.unwrap()(cq) }
}

fn end(cq: *mut ibv_cq_ex) {
    // SAFETY: the queue is alive.
    unsafe { (*cq).end_poll.unwrap()(cq) }
}

/// Calls a function that reads a part of the completion.
macro_rules! read {
    ($cq:expr, $name:ident) => {
        // SAFETY: the queue is alive.
        unsafe { (*$cq).$name.unwrap()($cq) }
    };
}

/// Two connected queue pairs with an extended queue for both ends.
struct ExtendedEnds {
    net: Net,
    cq: *mut ibv_cq_ex,
    qp: [*mut ibv_qp; 2],
}

impl ExtendedEnds {
    fn new(attr: ibv_cq_init_attr_ex) -> ExtendedEnds {
        ExtendedEnds::on(Net::new(), attr)
    }

    fn on(net: Net, attr: ibv_cq_init_attr_ex) -> ExtendedEnds {
        let cq = create(&net, attr).unwrap();
        let qp = [(); 2].map(|()| net.qp(cq.cast()));
        // SAFETY: both are alive.
        let num = qp.map(|qp| unsafe { (*qp).qp_num });
        net.connect(qp[0], num[1], ConnectConfig::default());
        net.connect(qp[1], num[0], ConnectConfig::default());
        ExtendedEnds { net, cq, qp }
    }

    /// Sends an empty message, whose completions are `id` here and `id + 1` there.
    fn send(&self, id: u64, flags: ibv_send_flags) {
        assert_eq!(post_recv(self.qp[1], id + 1, &mut []), 0);
        let mut wr = send_wr(id, ibv_wr_opcode::IBV_WR_SEND_WITH_IMM, &mut [], flags);
        wr.__bindgen_anon_1.imm_data = 77_u32.to_be();
        assert_eq!(post_send(self.qp[0], &mut wr), 0);
    }

    /// Starts to poll once there is something.
    fn wait(&self) {
        let end = std::time::Instant::now() + PATIENCE;
        loop {
            match start(self.cq) {
                0 => return,
                error => assert_eq!(error, ENOENT),
            }
            assert!(std::time::Instant::now() < end, "no completion");
        }
    }

    fn close(self) {
        self.qp.iter().for_each(|&qp| self.net.destroy_qp(qp));
        self.net.destroy_cq(self.cq.cast());
        self.net.close();
    }

    fn raw_clock(&self) -> u64 {
        let mut values = ibv_values_ex { comp_mask: u32::MAX, ..ibv_values_ex::default() };
        // SAFETY: the context is open.
        let result =
            unsafe { later(self.net.ctx).query_rt_values.unwrap()(self.net.ctx, &mut values) };
        assert_eq!((result, values.comp_mask), (0, 1));
        values.raw_clock.tv_nsec as u64
    }
}

#[test]
fn completions_are_read_one_by_one() {
    if !is_softs_own("extended completion queues") {
        return;
    }
    let ends = ExtendedEnds::new(attr(STANDARD));
    let cq = ends.cq;
    assert_eq!(start(cq), ENOENT);
    ends.send(10, SIGNALED);
    ends.wait();
    let mut seen = Vec::new();
    loop {
        // SAFETY: the queue is alive, and polled here.
        let (id, status) = unsafe { ((*cq).wr_id, (*cq).status) };
        let opcode = wc_opcode_name(read!(cq, read_opcode));
        seen.push((id, wc_status_name(status), opcode, read!(cq, read_qp_num)));
        assert_eq!(read!(cq, read_vendor_err), 0);
        assert_eq!(read!(cq, read_byte_len), 0);
        assert_eq!((read!(cq, read_slid), read!(cq, read_sl)), (0, 0));
        assert_eq!((read!(cq, read_dlid_path_bits), read!(cq, read_cvlan)), (0, 0));
        assert_eq!((read!(cq, read_completion_ts), read!(cq, read_flow_tag)), (0, 0));
        if id == 11 {
            assert_eq!(read!(cq, read_imm_data), 77_u32.to_be());
            assert_eq!(read!(cq, read_wc_flags), ibv_wc_flags::IBV_WC_WITH_IMM.0);
            // SAFETY: the queue pair is alive.
            assert_eq!(read!(cq, read_src_qp), unsafe { (*ends.qp[0]).qp_num });
        }
        if next(cq) != 0 {
            break;
        }
    }
    assert_eq!(next(cq), ENOENT);
    end(cq);
    // The other end's may be there first; one that is not there yet is found by the next poll.
    if seen.len() < 2 {
        ends.wait();
        // SAFETY: `cq` is alive, and polled here.
        seen.push((unsafe { (*cq).wr_id }, "SUCCESS", "", 0));
        end(cq);
    }
    seen.sort_unstable();
    // SAFETY: the queue pairs are alive.
    let num = ends.qp.map(|qp| unsafe { (*qp).qp_num });
    if is_synchronous() {
        let expected = [(10, "SUCCESS", "SEND", num[0]), (11, "SUCCESS", "RECV", num[1])];
        assert_eq!(seen, expected);
    }
    assert_eq!(seen.iter().map(|s| s.0).collect::<Vec<_>>(), [10, 11]);
    assert_eq!(start(cq), ENOENT);
    assert_eq!(next(cq), EINVAL, "nobody polls");
    ends.close();
}

#[test]
fn a_completion_has_the_time_at_which_it_came() {
    if !is_softs_own("times of completions") {
        return;
    }
    for flags in [TIME, WALL, TIME | WALL] {
        let ends = ExtendedEnds::new(attr(STANDARD | flags));
        let wall = || {
            let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
            now.as_nanos() as u64
        };
        let (before, wall_before) = (ends.raw_clock(), wall());
        ends.send(0, SIGNALED);
        let between = ends.raw_clock();
        ends.wait();
        let time = read!(ends.cq, read_completion_ts);
        let wall_time = read!(ends.cq, read_completion_wallclock_ns);
        let (after, wall_after) = (ends.raw_clock(), wall());
        end(ends.cq);
        assert!((before..=after).contains(&time), "{before} {time} {after}");
        if is_synchronous() {
            assert!(time <= between, "{time} {between}: it was taken at the poll");
        }
        // The clocks are read one after the other: a step of the wall clock between them, and
        // nothing else, makes more of a difference than the whole test takes.
        let slack = after - before;
        assert!((wall_before - slack..=wall_after + slack).contains(&wall_time));
        ends.close();
    }
}

#[test]
fn a_queue_with_timestamps_raises_an_event_only_when_armed() {
    if !is_softs_own("times of completions") || !is_synchronous() {
        return;
    }
    let net = Net::new();
    // SAFETY: the context is open.
    let channel = unsafe { (net.v.create_comp_channel)(net.ctx) };
    // SAFETY: the channel is alive, and so is its descriptor.
    let fd = unsafe { std::os::fd::BorrowedFd::borrow_raw((*channel).fd) };
    rustix::io::ioctl_fionbio(fd, true).unwrap();
    let ends = ExtendedEnds::on(net, ibv_cq_init_attr_ex { channel, ..attr(STANDARD | TIME) });
    let event = || {
        let (mut cq, mut user) = (core::ptr::null_mut(), core::ptr::null_mut());
        // SAFETY: the channel is alive; each event is acknowledged.
        unsafe {
            let taken = (ends.net.v.get_cq_event)(channel, &mut cq, &mut user) == 0;
            assert!(!taken || cq == ends.cq.cast());
            (ends.net.v.ack_cq_events)(ends.cq.cast(), u32::from(taken));
            taken
        }
    };
    let take = || {
        ends.wait();
        assert_ne!(read!(ends.cq, read_completion_ts), 0);
        while next(ends.cq) == 0 {
            assert_ne!(read!(ends.cq, read_completion_ts), 0);
        }
        end(ends.cq);
    };
    for asks in [false, true, false, true] {
        if asks {
            // SAFETY: the queue is alive.
            assert_eq!(unsafe { ibv_req_notify_cq(ends.cq.cast(), 0) }, 0);
        }
        ends.send(0, SIGNALED);
        take();
        assert_eq!(event(), asks);
    }
    let qp = ends.qp;
    qp.iter().for_each(|&qp| ends.net.destroy_qp(qp));
    ends.net.destroy_cq(ends.cq.cast());
    // SAFETY: nothing uses the channel any more.
    assert_eq!(unsafe { (ends.net.v.destroy_comp_channel)(channel) }, 0);
    ends.net.close();
}

#[test]
fn a_plain_poll_of_a_queue_with_times_finds_none_of_them() {
    if !is_softs_own("times of completions") {
        return;
    }
    let ends = ExtendedEnds::new(attr(STANDARD | TIME));
    ends.send(0, SIGNALED);
    let mut wcs = Vec::new();
    while wcs.len() < 2 {
        let mut wc = ibv_wc::default();
        // SAFETY: the queue is alive, and there is room for one completion.
        if unsafe { ibv_poll_cq(ends.cq.cast(), 1, &mut wc) } == 1 {
            wcs.push((wc.pkey_index, wc.slid, wc.sl, wc.dlid_path_bits));
        }
    }
    assert_eq!(wcs, [(0, 0, 0, 0); 2]);
    ends.close();
}

#[test]
fn what_the_device_does_not_have_is_refused() {
    if !is_softs_own("extended completion queues") {
        return;
    }
    let net = Net::new();
    for flag in [8, 9, 10, 12, 63] {
        assert_eq!(create(&net, attr(1 << flag)), Err(EOPNOTSUPP), "{flag}");
    }
    assert_eq!(create(&net, with_flags(4)), Err(EOPNOTSUPP));
    let unknown = ibv_cq_init_attr_ex { comp_mask: 1 << 7, ..attr(STANDARD) };
    assert_eq!(create(&net, unknown), Err(EOPNOTSUPP));
    for cqe in [0, u32::MAX] {
        let wrong = ibv_cq_init_attr_ex { cqe, ..attr(STANDARD) };
        assert_eq!(create(&net, wrong), Err(EINVAL), "{cqe}");
    }
    let cq = create(&net, with_flags(SINGLE)).unwrap();
    // SAFETY: the queue is alive.
    unsafe {
        let mut unknown = ibv_poll_cq_attr { comp_mask: 1 };
        assert_eq!((*cq).start_poll.unwrap()(cq, &mut unknown), EINVAL);
        let modify = later(net.ctx).modify_cq.unwrap();
        let unknown = ibv_modify_cq_attr { attr_mask: 2, ..ibv_modify_cq_attr::default() };
        assert_eq!(modify(cq.cast(), &mut { unknown }), EOPNOTSUPP);
    }
    net.destroy_cq(cq.cast());
    net.close();
}

#[test]
fn a_queue_that_ignores_overruns_survives_one() {
    if !is_softs_own("overruns of extended completion queues") {
        return;
    }
    for flags in [0, IGNORE] {
        let ends = ExtendedEnds::new(ibv_cq_init_attr_ex { cqe: 4, ..with_flags(flags) });
        for id in 0..3 {
            ends.send(10 * id, SIGNALED);
        }
        if is_synchronous() {
            let dies = ends.net.async_events().contains(&ibv_event_type::IBV_EVENT_CQ_ERR);
            assert_eq!(dies, flags == 0);
        }
        if flags == IGNORE && is_synchronous() {
            ends.wait();
            let mut n = 1;
            while next(ends.cq) == 0 {
                n += 1;
            }
            end(ends.cq);
            assert_eq!(n, 4);
            ends.send(100, SIGNALED);
            ends.wait();
            end(ends.cq);
            // More than a send queue has places: those of completions that are lost are free.
            for id in 100..300 {
                ends.send(10 * id, SIGNALED);
            }
        }
        ends.close();
    }
}

#[test]
fn threads_that_poll_take_turns() {
    if !is_softs_own("extended completion queues") {
        return;
    }
    const MESSAGES: u64 = 2_000;
    /// The queue, for threads.
    #[derive(Clone, Copy)]
    struct SharedCq(*mut ibv_cq_ex);
    // SAFETY: verbs may be called from any thread.
    unsafe impl Send for SharedCq {}
    let ends = ExtendedEnds::new(ibv_cq_init_attr_ex { cqe: 256, ..attr(STANDARD) });
    let total = std::sync::atomic::AtomicU64::new(0);
    let cq = SharedCq(ends.cq);
    let poll = |cq: SharedCq| {
        let SharedCq(cq) = cq;
        let mut ids = Vec::new();
        while total.load(std::sync::atomic::Ordering::Relaxed) < MESSAGES {
            if start(cq) != 0 {
                std::thread::yield_now();
                continue;
            }
            loop {
                // SAFETY: the queue is alive, and this thread polls it.
                let id = unsafe { (*cq).wr_id };
                std::thread::yield_now();
                // SAFETY: `cq` is alive, and this thread polls it.
                assert_eq!(unsafe { (*cq).wr_id }, id, "another thread is polling");
                ids.push(id);
                total.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                if next(cq) != 0 {
                    break;
                }
            }
            end(cq);
        }
        ids
    };
    let mut ids = std::thread::scope(|scope| {
        let pollers = [(); 2].map(|()| {
            scope.spawn({
                let poll = &poll;
                move || poll(cq)
            })
        });
        for id in 0..MESSAGES / 2 {
            // No more than 64 completions wait, nor requests.
            while total.load(std::sync::atomic::Ordering::Relaxed) + 64 < 2 * id {
                std::thread::yield_now();
            }
            ends.send(2 * id, SIGNALED);
        }
        pollers.map(|poller| poller.join().unwrap()).concat()
    });
    ids.sort_unstable();
    assert_eq!(ids, (0..MESSAGES).collect::<Vec<_>>());
    ends.close();
}

#[test]
fn a_queue_pair_can_be_destroyed_while_its_completions_are_read() {
    if !is_softs_own("extended completion queues") {
        return;
    }
    let ends = ExtendedEnds::new(attr(STANDARD));
    ends.send(0, SIGNALED);
    ends.wait();
    ends.qp.iter().for_each(|&qp| ends.net.destroy_qp(qp));
    assert_eq!(next(ends.cq), ENOENT, "they go with it");
    end(ends.cq);
    ends.net.destroy_cq(ends.cq.cast());
    ends.net.close();
}
