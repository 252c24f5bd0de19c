//! `ibv_modify_qp`: which transitions there are, and what each needs.
//!
//! Not on apart, distant: a completion is there when its post returns.

mod common;

use common::*;
use verbs_sys::ibv_qp_state as S;
use verbs_sys::*;

const EINVAL: i32 = 22;
const RC: ibv_qp_type = ibv_qp_type::IBV_QPT_RC;
const UC: ibv_qp_type = ibv_qp_type::IBV_QPT_UC;
const UD: ibv_qp_type = ibv_qp_type::IBV_QPT_UD;
const KINDS: [ibv_qp_type; 3] = [RC, UC, UD];
const STATES: [S; 6] = [
    S::IBV_QPS_RESET,
    S::IBV_QPS_INIT,
    S::IBV_QPS_RTR,
    S::IBV_QPS_RTS,
    S::IBV_QPS_SQD,
    S::IBV_QPS_ERR,
];

/// A queue pair connected to itself, in the state wanted.
fn in_state(net: &Net, cq: *mut ibv_cq, kind: ibv_qp_type, state: S) -> *mut ibv_qp {
    let qp = net.qp_of(kind, cq);
    // SAFETY: the queue pair is alive.
    let (init, rtr, rts) = net.steps_of(kind, unsafe { (*qp).qp_num }, ConnectConfig::default());
    let goes = |i| state == S::IBV_QPS_SQE || STATES.iter().position(|s| *s == state) > Some(i);
    for (i, (attr, mask)) in [init, rtr, rts].into_iter().enumerate() {
        if goes(i) {
            assert_eq!(net.modify(qp, attr, mask), 0);
        }
    }
    if state == S::IBV_QPS_SQE {
        // No unreliable transport reads.
        let mut wr = send_wr(1, ibv_wr_opcode::IBV_WR_RDMA_READ, &mut [], SIGNALED);
        assert_eq!(post_send(qp, &mut wr), 0);
        assert_eq!(net.poll(cq, 1)[0].status, "LOC_QP_OP");
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
    let (_, _, (mut attr, _)) = net.steps(unsafe { (*qp).qp_num }, ConnectConfig::default());
    attr.qp_state = to;
    attr
}

/// Transitions, and the attributes that each requires: (from, to, mask).
fn transitions(net: &Net, kind: ibv_qp_type) -> Vec<(S, S, u32)> {
    let state = ibv_qp_attr_mask::IBV_QP_STATE.0;
    let (init, rtr, rts) = net.steps_of(kind, 0, ConnectConfig::default());
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
    if kind != RC && is_soft() {
        // rxe has no such state.
        let after = [S::IBV_QPS_RESET, S::IBV_QPS_RTS, S::IBV_QPS_ERR];
        all.extend(after.map(|to| (S::IBV_QPS_SQE, to, state)));
    }
    all
}

#[test]
fn each_transition_needs_all_required_attributes() {
    let net = Net::new();
    let cq = net.cq(16);
    let all = |kind| transitions(&net, kind).into_iter().map(move |t| (kind, t));
    for (kind, (from, to, mask)) in KINDS.into_iter().flat_map(all) {
        let name = format!("{kind:?}: {} to {}", qp_state_name(from), qp_state_name(to));
        for bit in (1..32).map(|bit| 1 << bit).filter(|bit| mask & bit != 0) {
            let qp = in_state(&net, cq, kind, from);
            let attr = attributes(&net, qp, to);
            let error = net.modify(qp, attr, ibv_qp_attr_mask(mask & !bit));
            assert_eq!(error, EINVAL, "{name} without {bit:#x}");
            assert_eq!(net.state(qp), from, "a failed transition changes nothing");
            net.destroy_qp(qp);
        }
        let qp = in_state(&net, cq, kind, from);
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
    let known = KINDS.map(|kind| transitions(&net, kind));
    // No request moves a queue pair to SQE.
    let targets = [&STATES[..], &[S::IBV_QPS_SQE]].concat();
    let pairs = STATES.iter().flat_map(|from| targets.iter().map(move |to| (*from, *to)));
    let pairs: Vec<_> = pairs.collect();
    let of = |(kind, known)| pairs.iter().map(move |(from, to)| (kind, known, *from, *to));
    for (kind, known, from, to) in KINDS.into_iter().zip(&known).flat_map(of) {
        if known.iter().any(|(f, t, _)| (*f, *t) == (from, to)) {
            continue;
        }
        let qp = in_state(&net, cq, kind, from);
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
    use ibv_qp_attr_mask as M;
    let refused = [
        (RC, S::IBV_QPS_RESET, S::IBV_QPS_INIT, 0x39 | M::IBV_QP_SQ_PSN.0),
        (RC, S::IBV_QPS_RESET, S::IBV_QPS_INIT, 0x39 | M::IBV_QP_QKEY.0),
        (RC, S::IBV_QPS_INIT, S::IBV_QPS_RTR, 0x12_9181 | M::IBV_QP_TIMEOUT.0),
        (RC, S::IBV_QPS_RTS, S::IBV_QPS_RTS, 1 | M::IBV_QP_SQ_PSN.0),
        (RC, S::IBV_QPS_RTS, S::IBV_QPS_ERR, 1 | M::IBV_QP_ACCESS_FLAGS.0),
        (RC, S::IBV_QPS_RTS, S::IBV_QPS_RTS, 1 | M::IBV_QP_CAP.0),
        (UC, S::IBV_QPS_INIT, S::IBV_QPS_RTR, 0x10_1181 | M::IBV_QP_MIN_RNR_TIMER.0),
        (UC, S::IBV_QPS_RTR, S::IBV_QPS_RTS, 0x1_0001 | M::IBV_QP_TIMEOUT.0),
        (UC, S::IBV_QPS_RTS, S::IBV_QPS_RTS, 1 | M::IBV_QP_QKEY.0),
        (UD, S::IBV_QPS_RESET, S::IBV_QPS_INIT, 0x71 | M::IBV_QP_ACCESS_FLAGS.0),
        (UD, S::IBV_QPS_INIT, S::IBV_QPS_RTR, 1 | M::IBV_QP_AV.0),
        (UD, S::IBV_QPS_INIT, S::IBV_QPS_RTR, 1 | M::IBV_QP_DEST_QPN.0),
        (UD, S::IBV_QPS_RTR, S::IBV_QPS_RTS, 0x1_0001 | M::IBV_QP_RETRY_CNT.0),
        (UD, S::IBV_QPS_SQD, S::IBV_QPS_SQD, 1 | M::IBV_QP_PORT.0),
    ];
    for (kind, from, to, mask) in refused {
        let qp = in_state(&net, cq, kind, from);
        let attr = attributes(&net, qp, to);
        assert_eq!(net.modify(qp, attr, ibv_qp_attr_mask(mask)), EINVAL, "{from:?} {mask:#x}");
        net.destroy_qp(qp);
    }
    net.destroy_cq(cq);
    net.close();
}

#[test]
fn the_key_of_datagrams_can_be_changed_on_the_way_and_later() {
    let net = Net::new();
    let cq = net.cq(16);
    let qp = net.qp_of(UD, cq);
    let steps = [S::IBV_QPS_INIT, S::IBV_QPS_INIT, S::IBV_QPS_RTR, S::IBV_QPS_RTS, S::IBV_QPS_RTS];
    for (qkey, to) in (100..).zip(steps) {
        let from = net.state(qp);
        let all = transitions(&net, UD);
        let (_, _, mask) = *all.iter().find(|t| (t.0, t.1) == (from, to)).unwrap();
        let attr = ibv_qp_attr { qkey, ..attributes(&net, qp, to) };
        let mask = ibv_qp_attr_mask(mask) | ibv_qp_attr_mask::IBV_QP_QKEY;
        assert_eq!(net.modify(qp, attr, mask), 0, "{}", qp_state_name(to));
        assert_eq!(net.query(qp).qkey, qkey);
    }
    net.destroy_qp(qp);
    net.destroy_cq(cq);
    net.close();
}

type Change = fn(&mut ibv_qp_attr);

#[test]
fn values_out_of_range_are_refused() {
    let net = Net::new();
    let cq = net.cq(16);
    // With each, whether rxe refuses it, too.
    let bad: &[(S, Change, bool)] = &[
        (S::IBV_QPS_INIT, |a| a.port_num = 2, true),
        (S::IBV_QPS_INIT, |a| a.pkey_index = 9_999, false),
        (S::IBV_QPS_RTR, |a| a.path_mtu = ibv_mtu(9), true),
        (S::IBV_QPS_RTR, |a| a.path_mtu = ibv_mtu(0), false),
        (S::IBV_QPS_RTR, |a| a.ah_attr.is_global = 0, true),
        (S::IBV_QPS_RTR, |a| a.ah_attr.grh.sgid_index = 200, true),
        (S::IBV_QPS_RTR, |a| a.max_dest_rd_atomic = 255, false),
        (S::IBV_QPS_RTS, |a| a.max_rd_atomic = 255, true),
    ];
    let mut wrong = Vec::new();
    for (case, (to, spoil, by_rxe)) in bad.iter().enumerate() {
        let from = STATES[STATES.iter().position(|s| s == to).unwrap() - 1];
        let qp = in_state(&net, cq, RC, from);
        let all = transitions(&net, RC);
        let (_, _, mask) = *all.iter().find(|t| (t.0, t.1) == (from, *to)).unwrap();
        let mut attr = attributes(&net, qp, *to);
        spoil(&mut attr);
        let is_refused = net.modify(qp, attr, ibv_qp_attr_mask(mask)) != 0;
        let is_right = is_refused == (*by_rxe || !is_rxe());
        if !is_right || (net.state(qp) == from) != is_refused {
            wrong.push(case);
        }
        net.destroy_qp(qp);
    }
    assert!(wrong.is_empty(), "{wrong:?}");
    net.destroy_cq(cq);
    net.close();
}

#[test]
fn what_was_set_is_reported() {
    let pair = QpPair::new();
    let config = ConnectConfig::default();
    let attr = pair.net.query(pair.qp[0]);
    // rxe has in the second what was last set there.
    let current = if is_rxe() { S::IBV_QPS_RESET } else { S::IBV_QPS_RTS };
    assert_eq!((attr.qp_state, attr.cur_qp_state), (S::IBV_QPS_RTS, current));
    assert_eq!((attr.dest_qp_num, attr.path_mtu), (pair.num(1), ibv_mtu::IBV_MTU_1024));
    assert_eq!((attr.sq_psn, attr.rq_psn), (config.sq_psn, config.rq_psn));
    assert_eq!(
        (attr.timeout, attr.retry_cnt, attr.rnr_retry),
        (config.timeout, config.retry_cnt, 0)
    );
    assert_eq!((attr.max_rd_atomic, attr.max_dest_rd_atomic), (4, 4));
    assert_eq!((attr.min_rnr_timer, attr.port_num, attr.qp_access_flags), (1, 1, config.access));
    pair.close();
}

#[test]
fn posts_are_accepted_from_the_right_state_on() {
    let net = Net::new();
    let cq = net.cq(64);
    let all = [
        (S::IBV_QPS_RESET, EINVAL, EINVAL),
        (S::IBV_QPS_INIT, 0, EINVAL),
        (S::IBV_QPS_RTR, 0, EINVAL),
        (S::IBV_QPS_RTS, 0, 0),
        (S::IBV_QPS_SQD, 0, 0),
        (S::IBV_QPS_ERR, 0, 0),
    ];
    let ah = net.ah();
    for (kind, (state, recv, send)) in KINDS.into_iter().flat_map(|k| all.map(|row| (k, row))) {
        let qp = in_state(&net, cq, kind, state);
        assert_eq!(post_recv(qp, 1, &mut []), recv, "{state:?}");
        let mut wr = datagram_wr(2, &mut [], SIGNALED, (ah, 0x00ff_fff0, QKEY));
        assert_eq!(post_send(qp, &mut wr), send, "{state:?}");
        net.destroy_qp(qp);
    }
    net.destroy_ah(ah);
    let left = net.poll_now(cq);
    assert_eq!(
        left.is_empty(),
        !is_rxe(),
        "completions of destroyed queue pairs go, too: {left:?}"
    );
    net.destroy_cq(cq);
    net.close();
}

#[test]
fn the_error_state_flushes_both_queues_in_order() {
    // No receive at the peer: the first request waits, with all behind it.
    let forgiving = ConnectConfig { min_rnr_timer: 31, ..ConnectConfig::PATIENT };
    let p = QpPair::with(Net::new(), forgiving, forgiving);
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
    if is_rxe() {
        // What is posted to receive in this state is seen when it is entered again.
        assert_eq!(p.net.to_state(p.qp[0], S::IBV_QPS_ERR), 0);
    }
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
    let never = ConnectConfig { min_rnr_timer: 31, ..ConnectConfig::PATIENT };
    let p = QpPair::with(Net::new(), never, never);
    for id in 0..64 {
        let mut wr = send_wr(id, ibv_wr_opcode::IBV_WR_SEND, &mut [], UNSIGNALED);
        assert_eq!(post_send(p.qp[0], &mut wr), 0);
    }
    for end in 0..2 {
        assert_eq!(p.net.to_state(p.qp[end], S::IBV_QPS_RESET), 0);
    }
    assert!(p.net.poll_now(p.cq[0]).is_empty());
    p.net.connect(p.qp[0], p.num(1), ConnectConfig::default());
    p.net.connect(p.qp[1], p.num(0), ConnectConfig::default());
    assert_eq!(post_recv(p.qp[1], 1, &mut []), 0);
    let mut wr = send_wr(2, ibv_wr_opcode::IBV_WR_SEND, &mut [], SIGNALED);
    assert_eq!(post_send(p.qp[0], &mut wr), 0, "the send queue is empty again");
    assert_eq!(p.net.poll(p.cq[0], 1)[0].status, "SUCCESS");
    p.close();
}

#[test]
fn a_draining_queue_finishes_what_it_began_and_keeps_the_rest() {
    let never = ConnectConfig::PATIENT;
    let p = QpPair::with(Net::new(), never, never);
    // The first is under way (the receiver is not ready), the second is not.
    for id in 1..=2 {
        let mut wr = send_wr(id, ibv_wr_opcode::IBV_WR_SEND, &mut [], SIGNALED);
        assert_eq!(post_send(p.qp[0], &mut wr), 0);
    }
    let attr =
        ibv_qp_attr { qp_state: S::IBV_QPS_SQD, en_sqd_async_notify: 1, ..ibv_qp_attr::default() };
    let mask = ibv_qp_attr_mask::IBV_QP_STATE | ibv_qp_attr_mask::IBV_QP_EN_SQD_ASYNC_NOTIFY;
    assert_eq!(p.net.modify(p.qp[0], attr, mask), 0);
    if is_rxe() {
        return check_drained_by_rxe(p);
    }
    if is_wired() {
        return check_drained_over_udp(p);
    }
    assert_eq!(p.net.query(p.qp[0]).sq_draining, 1);
    assert!(p.net.async_events().is_empty());
    for id in 1..=3 {
        assert_eq!(post_recv(p.qp[1], id, &mut []), 0);
    }
    assert_eq!(p.net.poll(p.cq[0], 1)[0].id, 1);
    let mut wr = send_wr(3, ibv_wr_opcode::IBV_WR_SEND, &mut [], SIGNALED);
    assert_eq!(post_send(p.qp[0], &mut wr), 0);
    // The completion is written under the lock that the query takes: drained by then.
    assert_eq!(p.net.query(p.qp[0]).sq_draining, 0);
    assert_eq!(p.net.async_events(), [ibv_event_type::IBV_EVENT_SQ_DRAINED]);
    assert!(p.net.poll_now(p.cq[0]).is_empty());
    assert_eq!(p.net.to_state(p.qp[0], S::IBV_QPS_RTS), 0);
    let ids: Vec<u64> = p.net.poll(p.cq[0], 2).iter().map(|wc| wc.id).collect();
    assert_eq!(ids, [2, 3]);
    p.close();
}

/// Both are under way: the second one waits for no answer of the first.
fn check_drained_over_udp(p: QpPair) {
    for id in 1..=3 {
        assert_eq!(post_recv(p.qp[1], id, &mut []), 0);
    }
    let ids: Vec<u64> = p.net.poll(p.cq[0], 2).iter().map(|wc| wc.id).collect();
    assert_eq!(ids, [1, 2]);
    assert_eq!(p.net.query(p.qp[0]).sq_draining, 0);
    assert_eq!(p.net.async_events(), [ibv_event_type::IBV_EVENT_SQ_DRAINED]);
    let mut wr = send_wr(3, ibv_wr_opcode::IBV_WR_SEND, &mut [], SIGNALED);
    assert_eq!(post_send(p.qp[0], &mut wr), 0);
    assert!(p.net.poll_now(p.cq[0]).is_empty());
    assert_eq!(p.net.to_state(p.qp[0], S::IBV_QPS_RTS), 0);
    assert_eq!(p.net.poll(p.cq[0], 1)[0].id, 3);
    p.close();
}

/// rxe may say that it is drained while a request waits for its receiver, and that
/// request is then not retried; neither is lost.
fn check_drained_by_rxe(p: QpPair) {
    assert_eq!(p.net.state(p.qp[0]), S::IBV_QPS_SQD);
    assert_eq!(p.net.to_state(p.qp[0], S::IBV_QPS_ERR), 0);
    let all = p.net.poll(p.cq[0], 2);
    let reported: Vec<_> = all.iter().map(|wc| (wc.id, wc.status)).collect();
    assert_eq!(reported, [(1, "WR_FLUSH"), (2, "WR_FLUSH")]);
    p.close();
}

#[test]
fn an_idle_queue_is_drained_at_once() {
    let p = QpPair::new();
    let attr =
        ibv_qp_attr { qp_state: S::IBV_QPS_SQD, en_sqd_async_notify: 1, ..ibv_qp_attr::default() };
    let mask = ibv_qp_attr_mask::IBV_QP_STATE | ibv_qp_attr_mask::IBV_QP_EN_SQD_ASYNC_NOTIFY;
    assert_eq!(p.net.modify(p.qp[0], attr, mask), 0);
    assert_eq!(p.net.async_events(), [ibv_event_type::IBV_EVENT_SQ_DRAINED]);
    p.close();
}
