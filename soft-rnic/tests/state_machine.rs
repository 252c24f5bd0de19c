//! `ibv_modify_qp`: which transitions there are, and what each needs.

mod common;

use common::*;
use verbs_sys::ibv_qp_state as S;
use verbs_sys::*;

const EINVAL: i32 = 22;
const STATES: [S; 6] = [
    S::IBV_QPS_RESET,
    S::IBV_QPS_INIT,
    S::IBV_QPS_RTR,
    S::IBV_QPS_RTS,
    S::IBV_QPS_SQD,
    S::IBV_QPS_ERR,
];

/// A queue pair connected to itself, in the state wanted.
fn in_state(net: &Net, cq: *mut ibv_cq, state: S) -> *mut ibv_qp {
    let qp = net.qp(cq);
    // SAFETY: the queue pair is alive.
    let (init, rtr, rts) = net.steps(unsafe { (*qp).qp_num }, Config::default());
    for (i, (attr, mask)) in [init, rtr, rts].into_iter().enumerate() {
        if STATES.iter().position(|s| *s == state) > Some(i) {
            assert_eq!(net.modify(qp, attr, mask), 0);
        }
    }
    if state == S::IBV_QPS_SQD || state == S::IBV_QPS_ERR {
        assert_eq!(net.to_state(qp, state), 0);
    }
    assert_eq!(net.state(qp), state);
    qp
}

/// All attributes that have a valid value for every transition.
fn attributes(net: &Net, qp: *mut ibv_qp, to: S) -> ibv_qp_attr {
    // SAFETY: the queue pair is alive.
    let (_, _, (mut attr, _)) = net.steps(unsafe { (*qp).qp_num }, Config::default());
    attr.qp_state = to;
    attr
}

/// Transitions, and the attributes that each requires: (from, to, mask).
fn transitions(net: &Net) -> Vec<(S, S, u32)> {
    let state = ibv_qp_attr_mask::IBV_QP_STATE.0;
    let (init, rtr, rts) = net.steps(0, Config::default());
    let mut all = vec![
        (S::IBV_QPS_RESET, S::IBV_QPS_INIT, init.1.0),
        (S::IBV_QPS_INIT, S::IBV_QPS_INIT, state),
        (S::IBV_QPS_INIT, S::IBV_QPS_RTR, rtr.1.0),
        (S::IBV_QPS_RTR, S::IBV_QPS_RTS, rts.1.0),
        (S::IBV_QPS_RTS, S::IBV_QPS_RTS, state),
        (S::IBV_QPS_RTS, S::IBV_QPS_SQD, state),
        (S::IBV_QPS_SQD, S::IBV_QPS_SQD, state),
        (S::IBV_QPS_SQD, S::IBV_QPS_RTS, state),
    ];
    all.extend(STATES.map(|from| (from, S::IBV_QPS_RESET, state)));
    all.extend(STATES[1..].iter().map(|from| (*from, S::IBV_QPS_ERR, state)));
    all
}

#[test]
fn each_transition_works_with_what_it_requires_and_fails_without_any_of_it() {
    let net = Net::new();
    let cq = net.cq(16);
    for (from, to, mask) in transitions(&net) {
        let name = format!("{} to {}", qp_state_name(from), qp_state_name(to));
        for bit in (1..32).map(|bit| 1 << bit).filter(|bit| mask & bit != 0) {
            let qp = in_state(&net, cq, from);
            let attr = attributes(&net, qp, to);
            let error = net.modify(qp, attr, ibv_qp_attr_mask(mask & !bit));
            assert_eq!(error, EINVAL, "{name} without {bit:#x}");
            assert_eq!(net.state(qp), from, "a failed transition changes nothing");
            net.destroy_qp(qp);
        }
        let qp = in_state(&net, cq, from);
        let attr = attributes(&net, qp, to);
        assert_eq!(net.modify(qp, attr, ibv_qp_attr_mask(mask)), 0, "{name}");
        assert_eq!(net.state(qp), to);
        net.destroy_qp(qp);
    }
    net.destroy_cq(cq);
    net.close();
}

#[test]
fn there_are_no_other_transitions() {
    let net = Net::new();
    let cq = net.cq(16);
    let known = transitions(&net);
    for (from, to) in STATES.iter().flat_map(|from| STATES.map(|to| (*from, to))) {
        if known.iter().any(|(f, t, _)| (*f, *t) == (from, to)) {
            continue;
        }
        let qp = in_state(&net, cq, from);
        let attr = attributes(&net, qp, to);
        for mask in [1, 0x1f_ffff, 0x39, 0x12_9181, 0x1_2e01] {
            assert_eq!(net.modify(qp, attr, ibv_qp_attr_mask(mask)), EINVAL, "{from:?} {to:?}");
        }
        assert_eq!(net.state(qp), from);
        net.destroy_qp(qp);
    }
    net.destroy_cq(cq);
    net.close();
}

#[test]
fn attributes_that_a_transition_does_not_take_are_refused() {
    let net = Net::new();
    let cq = net.cq(16);
    let refused = [
        (S::IBV_QPS_RESET, S::IBV_QPS_INIT, 0x39 | ibv_qp_attr_mask::IBV_QP_SQ_PSN.0),
        (S::IBV_QPS_INIT, S::IBV_QPS_RTR, 0x12_9181 | ibv_qp_attr_mask::IBV_QP_TIMEOUT.0),
        (S::IBV_QPS_RTS, S::IBV_QPS_RTS, 1 | ibv_qp_attr_mask::IBV_QP_SQ_PSN.0),
        (S::IBV_QPS_RTS, S::IBV_QPS_ERR, 1 | ibv_qp_attr_mask::IBV_QP_ACCESS_FLAGS.0),
        (S::IBV_QPS_RTS, S::IBV_QPS_RTS, 1 | ibv_qp_attr_mask::IBV_QP_CAP.0),
    ];
    for (from, to, mask) in refused {
        let qp = in_state(&net, cq, from);
        let attr = attributes(&net, qp, to);
        assert_eq!(net.modify(qp, attr, ibv_qp_attr_mask(mask)), EINVAL, "{from:?} {mask:#x}");
        net.destroy_qp(qp);
    }
    net.destroy_cq(cq);
    net.close();
}

type Change = fn(&mut ibv_qp_attr);

#[test]
fn values_out_of_range_are_refused() {
    let net = Net::new();
    let cq = net.cq(16);
    let bad: &[(S, Change)] = &[
        (S::IBV_QPS_INIT, |a| a.port_num = 2),
        (S::IBV_QPS_INIT, |a| a.pkey_index = 9_999),
        (S::IBV_QPS_RTR, |a| a.path_mtu = ibv_mtu(9)),
        (S::IBV_QPS_RTR, |a| a.path_mtu = ibv_mtu(0)),
        (S::IBV_QPS_RTR, |a| a.ah_attr.is_global = 0),
        (S::IBV_QPS_RTR, |a| a.ah_attr.grh.sgid_index = 200),
        (S::IBV_QPS_RTR, |a| a.max_dest_rd_atomic = 255),
        (S::IBV_QPS_RTS, |a| a.max_rd_atomic = 255),
    ];
    for (to, spoil) in bad {
        let from = STATES[STATES.iter().position(|s| s == to).unwrap() - 1];
        let qp = in_state(&net, cq, from);
        let (_, _, mask) = *transitions(&net).iter().find(|t| (t.0, t.1) == (from, *to)).unwrap();
        let mut attr = attributes(&net, qp, *to);
        spoil(&mut attr);
        assert_ne!(net.modify(qp, attr, ibv_qp_attr_mask(mask)), 0, "{to:?}");
        assert_eq!(net.state(qp), from);
        net.destroy_qp(qp);
    }
    net.destroy_cq(cq);
    net.close();
}

#[test]
fn what_was_set_is_reported() {
    let pair = Pair::new();
    let config = Config::default();
    let attr = pair.net.query(pair.qp[0]);
    assert_eq!((attr.qp_state, attr.cur_qp_state), (S::IBV_QPS_RTS, S::IBV_QPS_RTS));
    assert_eq!((attr.dest_qp_num, attr.path_mtu), (pair.num(1), ibv_mtu::IBV_MTU_1024));
    assert_eq!((attr.sq_psn, attr.rq_psn), (config.sq_psn, config.rq_psn));
    assert_eq!((attr.timeout, attr.retry_cnt, attr.rnr_retry), (1, 1, 0));
    assert_eq!((attr.max_rd_atomic, attr.max_dest_rd_atomic), (4, 4));
    assert_eq!((attr.min_rnr_timer, attr.port_num, attr.qp_access_flags), (1, 1, config.access));
    pair.close();
}

#[test]
fn posts_are_accepted_from_the_right_state_on() {
    let net = Net::new();
    let cq = net.cq(64);
    for (state, recv, send) in [
        (S::IBV_QPS_RESET, EINVAL, EINVAL),
        (S::IBV_QPS_INIT, 0, EINVAL),
        (S::IBV_QPS_RTR, 0, EINVAL),
        (S::IBV_QPS_RTS, 0, 0),
        (S::IBV_QPS_SQD, 0, 0),
        (S::IBV_QPS_ERR, 0, 0),
    ] {
        let qp = in_state(&net, cq, state);
        assert_eq!(post_recv(qp, 1, &mut []), recv, "{state:?}");
        let mut wr = send_wr(2, ibv_wr_opcode::IBV_WR_SEND, &mut [], SIGNALED);
        assert_eq!(post_send(qp, &mut wr), send, "{state:?}");
        net.destroy_qp(qp);
    }
    assert!(net.poll_now(cq).is_empty(), "completions of destroyed queue pairs go, too");
    net.destroy_cq(cq);
    net.close();
}

#[test]
fn the_error_state_flushes_both_queues_in_order_and_what_comes_later() {
    // No receive at the peer: the first request waits, with all behind it.
    let forgiving = Config { rnr_retry: 7, min_rnr_timer: 31, ..Config::default() };
    let p = Pair::with(Net::new(), forgiving, forgiving);
    for id in 0..5 {
        assert_eq!(post_recv(p.qp[0], 100 + id, &mut []), 0);
        let mut wr = send_wr(id, ibv_wr_opcode::IBV_WR_SEND, &mut [], UNSIGNALED);
        assert_eq!(post_send(p.qp[0], &mut wr), 0);
    }
    assert!(p.net.poll_now(p.cq[0]).is_empty());
    assert_eq!(p.net.to_state(p.qp[0], S::IBV_QPS_ERR), 0);
    assert_eq!(post_recv(p.qp[0], 105, &mut []), 0);
    let mut wr = send_wr(5, ibv_wr_opcode::IBV_WR_SEND, &mut [], UNSIGNALED);
    assert_eq!(post_send(p.qp[0], &mut wr), 0);
    let all = p.net.poll(p.cq[0], 12);
    assert!(all.iter().all(|wc| wc.status == "WR_FLUSH"), "{all:?}");
    let of = |first: u64| -> Vec<u64> {
        all.iter().map(|wc| wc.id).filter(|id| (first..first + 10).contains(id)).collect()
    };
    assert_eq!(of(0), (0..6).collect::<Vec<u64>>());
    assert_eq!(of(100), (100..106).collect::<Vec<u64>>());
    p.close();
}

#[test]
fn reset_forgets_everything_and_the_pair_connects_again() {
    let never = Config { rnr_retry: 7, min_rnr_timer: 31, ..Config::default() };
    let p = Pair::with(Net::new(), never, never);
    for id in 0..64 {
        let mut wr = send_wr(id, ibv_wr_opcode::IBV_WR_SEND, &mut [], UNSIGNALED);
        assert_eq!(post_send(p.qp[0], &mut wr), 0);
    }
    for end in 0..2 {
        assert_eq!(p.net.to_state(p.qp[end], S::IBV_QPS_RESET), 0);
    }
    assert!(p.net.poll_now(p.cq[0]).is_empty());
    p.net.connect(p.qp[0], p.num(1), Config::default());
    p.net.connect(p.qp[1], p.num(0), Config::default());
    assert_eq!(post_recv(p.qp[1], 1, &mut []), 0);
    let mut wr = send_wr(2, ibv_wr_opcode::IBV_WR_SEND, &mut [], SIGNALED);
    assert_eq!(post_send(p.qp[0], &mut wr), 0, "the send queue is empty again");
    assert_eq!(p.net.poll(p.cq[0], 1)[0].status, "SUCCESS");
    p.close();
}

#[test]
fn a_draining_queue_finishes_what_it_began_and_keeps_the_rest() {
    let never = Config { rnr_retry: 7, min_rnr_timer: 1, ..Config::default() };
    let p = Pair::with(Net::new(), never, never);
    // The first is under way (the receiver is not ready), the second is not.
    for id in 1..=2 {
        let mut wr = send_wr(id, ibv_wr_opcode::IBV_WR_SEND, &mut [], SIGNALED);
        assert_eq!(post_send(p.qp[0], &mut wr), 0);
    }
    let attr =
        ibv_qp_attr { qp_state: S::IBV_QPS_SQD, en_sqd_async_notify: 1, ..ibv_qp_attr::default() };
    let mask = ibv_qp_attr_mask::IBV_QP_STATE | ibv_qp_attr_mask::IBV_QP_EN_SQD_ASYNC_NOTIFY;
    assert_eq!(p.net.modify(p.qp[0], attr, mask), 0);
    assert_eq!(p.net.query(p.qp[0]).sq_draining, 1);
    assert!(p.net.async_events().is_empty());
    for id in 1..=3 {
        assert_eq!(post_recv(p.qp[1], id, &mut []), 0);
    }
    assert_eq!(p.net.poll(p.cq[0], 1)[0].id, 1);
    let mut wr = send_wr(3, ibv_wr_opcode::IBV_WR_SEND, &mut [], SIGNALED);
    assert_eq!(post_send(p.qp[0], &mut wr), 0);
    // The completion comes under the lock that the query takes: drained by then.
    assert_eq!(p.net.query(p.qp[0]).sq_draining, 0);
    assert_eq!(p.net.async_events(), [ibv_event_type::IBV_EVENT_SQ_DRAINED]);
    assert!(p.net.poll_now(p.cq[0]).is_empty());
    assert_eq!(p.net.to_state(p.qp[0], S::IBV_QPS_RTS), 0);
    let ids: Vec<u64> = p.net.poll(p.cq[0], 2).iter().map(|wc| wc.id).collect();
    assert_eq!(ids, [2, 3]);
    p.close();
}

#[test]
fn an_idle_queue_is_drained_at_once() {
    let p = Pair::new();
    let attr =
        ibv_qp_attr { qp_state: S::IBV_QPS_SQD, en_sqd_async_notify: 1, ..ibv_qp_attr::default() };
    let mask = ibv_qp_attr_mask::IBV_QP_STATE | ibv_qp_attr_mask::IBV_QP_EN_SQD_ASYNC_NOTIFY;
    assert_eq!(p.net.modify(p.qp[0], attr, mask), 0);
    assert_eq!(p.net.async_events(), [ibv_event_type::IBV_EVENT_SQ_DRAINED]);
    p.close();
}
