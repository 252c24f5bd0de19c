use super::*;
use crate::queues::wqe::SqOp;

fn wqe(op: SqOp, fence: bool) -> Wqe {
    // SAFETY: zero is a valid value of every field of the ABI's request.
    let request: verbs_sys::ibv_send_wr = unsafe { core::mem::zeroed() };
    Wqe { op, fence, ..Wqe::plain(&request, false, 0) }
}

#[test]
fn requests_follow_each_other_but_for_fences_and_limits() {
    let requester = RequesterState { max_rd_atomic: 2, ..RequesterState::default() };
    let mut times = Times::default();
    let mut plan = |now, op, fence| {
        let transit = |leaves| TransitTimes { arrival: leaves + 50, answer: leaves + 100 };
        let (wqe, limits) = (wqe(op, fence), CardLimits::default());
        let TransitTimes { arrival, answer } = times.plan(now, &requester, &wqe, limits, transit);
        (arrival, answer)
    };
    assert_eq!(plan(10, SqOp::Read, false), (60, 110));
    assert_eq!(plan(20, SqOp::Write, false), (70, 120));
    assert_eq!(plan(30, SqOp::Read, false), (80, 130));
    // Two READs are under way: the third one leaves when the first is answered.
    assert_eq!(plan(40, SqOp::Read, false), (160, 210));
    assert_eq!(plan(50, SqOp::Send, false), (160, 210));
    // All before it are answered first.
    assert_eq!(plan(60, SqOp::Write, true), (260, 310));
    assert_eq!(plan(400, SqOp::Write, true), (450, 500));
}
