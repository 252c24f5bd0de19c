use super::*;

#[test]
fn unreliable_transports_have_no_retry_attributes() {
    let (remote, attr) =
        (Endpoint { qp_num: 1, psn: 2, lid: 3, gid: [0; 16] }, ConnectAttr::new(0, 5));
    let retries = bits::IBV_QP_TIMEOUT.0
        | bits::IBV_QP_RETRY_CNT.0
        | bits::IBV_QP_RNR_RETRY.0
        | bits::IBV_QP_MIN_RNR_TIMER.0
        | bits::IBV_QP_MAX_QP_RD_ATOMIC.0
        | bits::IBV_QP_MAX_DEST_RD_ATOMIC.0;
    let masks = |t| {
        let (_, rtr) = rtr(t, &remote, &attr, ibv_ah_attr::default());
        (rtr.0, rts(t, &attr).1.0)
    };
    let (rtr, rts) = masks(Transport::Rc);
    assert_eq!((rtr | rts) & retries, retries);
    let unreliable = masks(Transport::Uc);
    assert_eq!(unreliable, (rtr & !retries, rts & !retries));
}

#[test]
fn datagrams_have_a_q_key_instead_of_access_flags() {
    let (attr, mask) = init(Transport::Ud { qkey: 7 }, 1, RemoteAccess::ALL);
    assert_eq!((attr.qkey, attr.qp_access_flags), (7, 0));
    assert_eq!(mask.0 & (bits::IBV_QP_QKEY.0 | bits::IBV_QP_ACCESS_FLAGS.0), bits::IBV_QP_QKEY.0);
    let (_, mask) = init(Transport::Uc, 1, RemoteAccess::ALL);
    assert_eq!(
        mask.0 & (bits::IBV_QP_QKEY.0 | bits::IBV_QP_ACCESS_FLAGS.0),
        bits::IBV_QP_ACCESS_FLAGS.0
    );
}
