use super::*;

#[test]
fn only_the_working_states_fail() {
    for transport in [Transport::Rc, Transport::Uc, Transport::Ud, Transport::XrcSend] {
        assert_eq!(attributes(transport, State::Reset, State::Err), None);
        assert_eq!(attributes(transport, State::Destroyed, State::Init), None);
    }
}

#[test]
fn a_refusal_says_what_would_be_right() {
    // SAFETY: zero is a valid value of every field.
    let mut attr: ibv_qp_attr = unsafe { core::mem::zeroed() };
    attr.port_num = 2;
    let says = |(from, to), attr: &ibv_qp_attr, mask| {
        judge(Transport::Rc, (from, to), attr, mask).unwrap_err().to_string()
    };
    let to_init = (State::Reset, State::Init);
    let missing = says(to_init, &attr, STATE | PKEY);
    assert_eq!(missing, "the mask lacks IBV_QP_ACCESS_FLAGS | IBV_QP_PORT");
    let port = says(to_init, &attr, STATE | PKEY | PORT | ACCESS);
    assert_eq!(port, "port_num is 2: it has to be 1, the device's only port");
    let more = says(to_init, &attr, STATE | PKEY | PORT | ACCESS | SQ_PSN);
    assert_eq!(more, "leave IBV_QP_SQ_PSN out of the mask");
    let none = says((State::Init, State::Rts), &attr, STATE);
    assert_eq!(none, "there is no such transition");
    assert!(NAMES.iter().all(|(bit, _)| KNOWN & bit != 0));
}
