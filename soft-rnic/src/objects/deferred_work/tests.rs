use super::*;
use crate::testing::queue_pair;
use verbs_sys::ibv_event_type;

/// Between the two steps of `die`, for which no lock is held here.
#[test]
fn a_queue_pair_that_was_destroyed_raises_no_event() {
    // SAFETY: the queue pair is alive until it is destroyed.
    let qp = unsafe {
        let abi = queue_pair();
        let qp = Qp::from_abi(abi).unwrap().keep();
        assert_eq!((crate::table().destroy_qp)(abi), 0);
        qp
    };
    qp.raise(ibv_event_type::IBV_EVENT_QP_FATAL);
    assert!(qp.context.events.is_empty());
}

#[test]
fn what_waits_for_other_processes_comes_after_all_else() {
    // SAFETY: the queue pair is alive.
    let qp = unsafe { Qp::from_abi(queue_pair()) }.unwrap().keep();
    let ending = BindingEnd { number: 1, index: 0, pd: 1, qpn: 1, peer: 0 };
    let (of, cq) = (|| Arc::clone(&qp), Arc::clone(&qp.send_cq));
    let mut items = vec![
        WorkItem::Flush(of()),
        WorkItem::Settle(of(), ending),
        WorkItem::Attach(of(), 1),
        WorkItem::MeetMembers(of()),
        WorkItem::KillUsers(cq),
        WorkItem::Attach(of(), 2),
        WorkItem::Settle(of(), ending),
        WorkItem::Meet(of(), 1),
    ];
    let all = core::iter::from_fn(|| next(&mut items));
    let ranks: Vec<_> = all.map(|item| item.rank()).collect();
    assert_eq!(ranks, [0, 0, 1, 1, 2, 2, 3, 3]);
}
