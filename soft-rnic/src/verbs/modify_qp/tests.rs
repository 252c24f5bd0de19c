use super::*;

#[test]
fn only_the_working_states_fail() {
    for transport in [QpTransport::Rc, QpTransport::Uc, QpTransport::Ud, QpTransport::XrcSend] {
        assert_eq!(attributes(transport, QueuePairState::Reset, QueuePairState::Err), None);
        assert_eq!(attributes(transport, QueuePairState::Destroyed, QueuePairState::Init), None);
    }
}

#[test]
fn a_refusal_says_what_would_be_right() {
    // SAFETY: zero is a valid value of every field.
    let mut attr: ibv_qp_attr = unsafe { core::mem::zeroed() };
    attr.port_num = 2;
    let says = |(from, to), attr: &ibv_qp_attr, mask| {
        judge(QpTransport::Rc, (from, to), attr, mask).unwrap_err().to_string()
    };
    let to_init = (QueuePairState::Reset, QueuePairState::Init);
    let missing = says(to_init, &attr, STATE | PKEY);
    assert_eq!(missing, "the mask lacks IBV_QP_ACCESS_FLAGS | IBV_QP_PORT");
    let port = says(to_init, &attr, STATE | PKEY | PORT | ACCESS);
    assert_eq!(port, "port_num is 2: it has to be 1, the device's only port");
    let more = says(to_init, &attr, STATE | PKEY | PORT | ACCESS | SQ_PSN);
    assert_eq!(more, "leave IBV_QP_SQ_PSN out of the mask");
    let none = says((QueuePairState::Init, QueuePairState::Rts), &attr, STATE);
    assert_eq!(none, "there is no such transition");
    assert!(NAMES.iter().all(|(bit, _)| KNOWN & bit != 0));
}
