//! What the examples share.

use verbs_sys::*;

/// What the peer may do with memory and by queue pairs: WRITE and READ.
pub(crate) const ACCESS: i32 = 7;

/// # Safety
/// The queue pair is alive.
pub(crate) unsafe fn connect(verbs: &Verbs, qp: *mut ibv_qp, to: u32, gid: ibv_gid) {
    let mut attr = ibv_qp_attr { port_num: 1, dest_qp_num: to, ..Default::default() };
    attr.qp_access_flags = ACCESS as u32;
    attr.path_mtu = ibv_mtu::IBV_MTU_4096;
    (attr.min_rnr_timer, attr.timeout, attr.retry_cnt, attr.rnr_retry) = (12, 14, 7, 7);
    (attr.ah_attr.is_global, attr.ah_attr.grh.dgid, attr.ah_attr.port_num) = (1, gid, 1);
    // The masks of INIT, RTR and RTS of a reliable connection.
    for (state, mask) in [(1, 0x39), (2, 0x12_9181), (3, 0x1_2e01)] {
        attr.qp_state = ibv_qp_state(state);
        // SAFETY: the caller's promise.
        assert_eq!(unsafe { (verbs.modify_qp)(qp, &mut attr, mask) }, 0);
    }
}
