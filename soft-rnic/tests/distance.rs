//! A device whose queue pairs are a round trip from each other, in worlds: times are exact there.
//!
//! Only on soft0: it makes distant devices itself.

mod common;

use std::time::{Duration, Instant};

use common::*;
use host::time::{now, since};
use host::world::{self, Limits, Nature};
use ibv_wr_opcode as W;
use soft_rnic::{WorldDevice, WorldKind, counters_of};
use verbs_sys::*;

const ROUND_TRIP: Duration = Duration::from_millis(4);
/// Time that calls take, and by which a thread that polls may be late.
const LATE: Duration = Duration::from_micros(100);

/// Orders of threads.
const WORLDS: u64 = 20;

/// Runs a test in worlds, each with a device of such a round trip.
fn in_worlds(round_trip: Duration, test: impl Fn(&str, Net) + Copy + Send + 'static) {
    for seed in 0..WORLDS {
        let (_, ended) = world::run(seed, Nature::default(), Limits::default(), move || {
            let device = WorldDevice::new(WorldKind::Distant(round_trip));
            test(device.name(), Net::on(soft_rnic::table(), device.name()));
            assert_eq!(device.left(), []);
        });
        ended.unwrap_or_else(|failure| panic!("seed {seed}: {failure}"));
    }
}

/// As [`in_worlds`], with two queue pairs that are connected.
fn far(round_trip: Duration, test: fn(QpPair)) {
    in_worlds(round_trip, move |_, net| {
        test(QpPair::with(net, ConnectConfig::default(), ConnectConfig::default()));
    });
}

/// Fails unless a time is this one, but for what calls take.
#[track_caller]
fn assert_took(time: Duration, expected: Duration) {
    assert!((expected..expected + LATE).contains(&time), "{time:?}, and not {expected:?}");
}

/// A signalled request of end 0, with end 1's memory where it is about that.
fn post(p: &QpPair, id: u64, opcode: ibv_wr_opcode, fence: bool) {
    let flags = if fence { SIGNALED.0 | ibv_send_flags::IBV_SEND_FENCE.0 } else { SIGNALED.0 };
    let mut sges = [sge(p.mr[0], 0, 64)];
    let mut wr = send_wr(id, opcode, &mut sges, ibv_send_flags(flags));
    if opcode != W::IBV_WR_SEND {
        let (remote_addr, rkey) = (p.addr(1) + 256, p.key(1));
        wr.wr.rdma = ibv_send_wr__bindgen_ty_2__bindgen_ty_1 { remote_addr, rkey };
    }
    assert_eq!(post_send(p.qp[0], &mut wr), 0);
}

/// Returns the time that it takes until `n` completions of end 0 are there, which are the ids 0, 1,
/// …
fn time(p: &QpPair, start: Instant, n: u64) -> Duration {
    let completions = p.net.poll(p.cq[0], n as usize);
    let time = since(start);
    for (id, wc) in (0..n).zip(&completions) {
        assert_eq!((wc.id, wc.status), (id, "SUCCESS"), "{completions:?}");
    }
    time
}

#[test]
fn a_message_arrives_in_half_a_round_trip_and_completes_in_one() {
    far(ROUND_TRIP, |mut p| {
        p.buf[0][..64].fill(7);
        assert_eq!(post_recv(p.qp[1], 9, &mut [sge(p.mr[1], 0, 64)]), 0);
        let start = now();
        post(&p, 0, W::IBV_WR_SEND, false);
        let message = p.net.poll(p.cq[1], 1);
        assert_took(since(start), ROUND_TRIP / 2);
        assert_eq!((message[0].id, message[0].status, message[0].len), (9, "SUCCESS", 64));
        assert_eq!(p.buf[1][..64], [7; 64]);
        assert_took(time(&p, start, 1), ROUND_TRIP);
        p.close();
    });
}

#[test]
fn a_distant_write_lands_on_arrival_and_not_at_its_post() {
    far(ROUND_TRIP, |mut p| {
        p.buf[0][..64].fill(7);
        let start = now();
        post(&p, 0, W::IBV_WR_RDMA_WRITE, false);
        assert_eq!(p.buf[1][256], 0);
        time(&p, start, 1);
        assert_eq!(p.buf[1][256..320], [7; 64]);
        p.close();
    });
}

#[test]
fn reads_overlap_up_to_the_limit_and_never_behind_a_fence() {
    far(ROUND_TRIP, |p| {
        let trips = |fence, reads| {
            let start = now();
            (0..reads).for_each(|id| post(&p, id, W::IBV_WR_RDMA_READ, fence));
            time(&p, start, reads)
        };
        // Four at a time.
        assert_took(trips(false, 4), ROUND_TRIP);
        assert_took(trips(false, 5), 2 * ROUND_TRIP);
        assert_took(trips(true, 3), 3 * ROUND_TRIP);
        p.close();
    });
}

#[test]
fn messages_do_not_wait_for_each_other() {
    far(ROUND_TRIP, |mut p| {
        p.buf[0][..64].fill(7);
        let (mr, key, there) = (p.mr[0], p.key(1), p.addr(1));
        for id in 0..12 {
            let mut sges = [sge(mr, 0, 64)];
            let mut write = send_wr(id, W::IBV_WR_RDMA_WRITE, &mut sges, SIGNALED);
            write.wr.rdma.remote_addr = there + 64 * id;
            write.wr.rdma.rkey = key;
            assert_eq!(post_send(p.qp[0], &mut write), 0);
        }
        let first = p.net.poll(p.cq[0], 1).len();
        // The last one has arrived before the first one is answered.
        assert_eq!(p.buf[1][64 * 11..64 * 12], [7; 64]);
        assert!(p.net.poll(p.cq[0], 12 - first).iter().all(|wc| wc.status == "SUCCESS"));
        p.close();
    });
}

#[test]
fn a_thread_that_sleeps_is_woken_though_none_polls() {
    in_worlds(ROUND_TRIP, |_, net| {
        // SAFETY: the context is open; everything is destroyed below.
        let channel = unsafe { (net.v.create_comp_channel)(net.ctx) };
        let cq = [net.cq(16), net.cq_with(16, channel)];
        let qp = cq.map(|cq| net.qp(cq));
        // SAFETY: both are alive.
        let numbers = qp.map(|qp| unsafe { (*qp).qp_num });
        let mut buf = vec![0; 4096];
        let mr = net.mr(&mut buf, RW);
        net.connect(qp[0], numbers[1], ConnectConfig::default());
        net.connect(qp[1], numbers[0], ConnectConfig::default());
        assert_eq!(post_recv(qp[1], 1, &mut [sge(mr, 0, 64)]), 0);
        let (mut landing, mut sges) = ([sge(mr, 128, 64)], [sge(mr, 64, 64)]);
        let mut read = send_wr(0, W::IBV_WR_RDMA_READ, &mut landing, UNSIGNALED);
        // SAFETY: the region is alive.
        let (remote_addr, rkey) = unsafe { ((*mr).addr as u64, (*mr).rkey) };
        read.wr.rdma = ibv_send_wr__bindgen_ty_2__bindgen_ty_1 { remote_addr, rkey };
        // It leaves when the READ is answered, which no thread polls for either.
        let flags = ibv_send_flags(SIGNALED.0 | ibv_send_flags::IBV_SEND_FENCE.0);
        let start = now();
        // SAFETY: the queue and the channel are alive; the event is acknowledged.
        unsafe {
            assert_eq!(ibv_req_notify_cq(cq[1], 0), 0);
            assert_eq!(post_send(qp[0], &mut read), 0);
            assert_eq!(post_send(qp[0], &mut send_wr(0, W::IBV_WR_SEND, &mut sges, flags)), 0);
            let (mut woken, mut context) = (core::ptr::null_mut(), core::ptr::null_mut());
            assert_eq!((net.v.get_cq_event)(channel, &mut woken, &mut context), 0);
            assert_eq!(woken, cq[1]);
            (net.v.ack_cq_events)(woken, 1);
        }
        assert_took(since(start), ROUND_TRIP * 3 / 2);
        assert_eq!(net.poll(cq[1], 1).len(), 1);
        assert_eq!(net.poll(cq[0], 1).len(), 1);
        for end in 0..2 {
            net.destroy_qp(qp[end]);
            net.destroy_cq(cq[end]);
        }
        // SAFETY: its queue is gone.
        assert_eq!(unsafe { (net.v.destroy_comp_channel)(channel) }, 0);
        net.dereg(mr);
        net.close();
    });
}

#[test]
fn what_is_on_its_way_is_flushed_or_lost_with_its_queue_pair() {
    far(2 * PATIENCE, |p| {
        (0..3).for_each(|id| post(&p, id, W::IBV_WR_RDMA_WRITE, false));
        assert_eq!(p.net.to_state(p.qp[0], ibv_qp_state::IBV_QPS_ERR), 0);
        let flushed = p.net.poll(p.cq[0], 3);
        assert_eq!(flushed.iter().map(|wc| wc.status).collect::<Vec<_>>(), ["WR_FLUSH"; 3]);
        assert_eq!(p.buf[1][256..320], [0; 64]);
        // Used again, it does not take over the times of what was lost.
        assert_eq!(p.net.to_state(p.qp[0], ibv_qp_state::IBV_QPS_RESET), 0);
        p.close();
    });
}

#[test]
fn a_wrong_key_fails_after_a_round_trip_and_flushes_the_rest() {
    far(ROUND_TRIP, |p| {
        let start = now();
        post(&p, 0, W::IBV_WR_RDMA_WRITE, false);
        let mut sges = [sge(p.mr[0], 0, 64)];
        let mut wrong = send_wr(1, W::IBV_WR_RDMA_WRITE, &mut sges, SIGNALED);
        wrong.wr.rdma =
            ibv_send_wr__bindgen_ty_2__bindgen_ty_1 { remote_addr: p.addr(1), rkey: !p.key(1) };
        assert_eq!(post_send(p.qp[0], &mut wrong), 0);
        post(&p, 2, W::IBV_WR_RDMA_WRITE, false);
        let all = p.net.poll(p.cq[0], 3);
        assert_took(since(start), ROUND_TRIP);
        let statuses: Vec<_> = all.iter().map(|wc| (wc.id, wc.status)).collect();
        assert_eq!(statuses, [(0, "SUCCESS"), (1, "REM_ACCESS"), (2, "WR_FLUSH")]);
        p.net.async_events();
        p.close();
    });
}

#[test]
fn nothing_arrives_behind_a_request_that_was_refused_here() {
    far(ROUND_TRIP, |mut p| {
        p.buf[0][..64].fill(7);
        post(&p, 0, W::IBV_WR_RDMA_WRITE, false);
        let (remote_addr, rkey) = (p.addr(1) + 512, p.key(1));
        for (id, lkey) in [(1, 0), (2, sge(p.mr[0], 0, 64).lkey)] {
            let mut sges = [ibv_sge { lkey, ..sge(p.mr[0], 0, 64) }];
            let mut write = send_wr(id, W::IBV_WR_RDMA_WRITE, &mut sges, SIGNALED);
            write.wr.rdma = ibv_send_wr__bindgen_ty_2__bindgen_ty_1 { remote_addr, rkey };
            assert_eq!(post_send(p.qp[0], &mut write), 0);
        }
        let all = p.net.poll(p.cq[0], 3);
        let statuses: Vec<_> = all.iter().map(|wc| (wc.id, wc.status)).collect();
        assert_eq!(statuses, [(0, "SUCCESS"), (1, "LOC_PROT"), (2, "WR_FLUSH")]);
        assert_eq!((&p.buf[1][256..320], &p.buf[1][512..576]), (&[7; 64][..], &[0; 64][..]));
        p.net.async_events();
        p.close();
    });
}

#[test]
fn each_message_has_retries_of_its_own() {
    in_worlds(ROUND_TRIP, |name, net| {
        // About retries: the most there are, 6 after 0.66 s each, so that a receive is posted
        // before the last. The messages need one each, and more than 6 together.
        let config = ConnectConfig { rnr_retry: 6, min_rnr_timer: 0, ..ConnectConfig::LIVING };
        let p = QpPair::with(net, config, config);
        let refused = || counters_of(name).unwrap().rnr_naks;
        let mut before = refused();
        (0..8).for_each(|id| post(&p, id, W::IBV_WR_SEND, false));
        for id in 0..8 {
            // It finds nothing, and then what is posted now.
            while refused() == before {
                assert!(p.net.poll_now(p.cq[0]).is_empty());
                host::thread::yield_now();
            }
            before = refused();
            assert_eq!(post_recv(p.qp[1], id, &mut [sge(p.mr[1], 0, 64)]), 0);
            let wc = p.net.poll(p.cq[0], 1);
            assert_eq!((wc[0].id, wc[0].status), (id, "SUCCESS"));
        }
        p.close();
    });
}

#[test]
fn its_requests_are_counted_apart() {
    in_worlds(Duration::from_nanos(700), |name, net| {
        let p = QpPair::with(net, ConnectConfig::default(), ConnectConfig::default());
        let before = counters_of(name).unwrap();
        let start = now();
        (0..10).for_each(|id| post(&p, id, W::IBV_WR_RDMA_WRITE, false));
        time(&p, start, 10);
        let after = counters_of(name).unwrap();
        assert_eq!((after.requests - before.requests, after.bytes - before.bytes), (10, 640));
        p.close();
    });
}
