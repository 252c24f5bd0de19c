//! Thread domains, parent domains, and shared receive queues of the newer verb.
//!
//! Not on apart, distant: a completion is there when its post returns.

mod common;

use core::ptr::null_mut;

use common::*;
use verbs_sys::*;

const EINVAL: i32 = 22;
const EBUSY: i32 = 16;
const EOPNOTSUPP: i32 = 95;

fn td(net: &Net) -> *mut ibv_td {
    // SAFETY: the context is open.
    let td = unsafe {
        later(net.ctx).alloc_td.unwrap()(net.ctx, &mut ibv_td_init_attr { comp_mask: 0 })
    };
    assert!(!td.is_null());
    td
}

fn parent(net: &Net, mut attr: ibv_parent_domain_init_attr) -> Result<*mut ibv_pd, i32> {
    // SAFETY: the context is open, and the attributes' objects are alive.
    let pd = unsafe { later(net.ctx).alloc_parent_domain.unwrap()(net.ctx, &mut attr) };
    if pd.is_null() { Err(errno()) } else { Ok(pd) }
}

fn parent_domain_attr(pd: *mut ibv_pd, td: *mut ibv_td) -> ibv_parent_domain_init_attr {
    ibv_parent_domain_init_attr { pd, td, ..ibv_parent_domain_init_attr::default() }
}

fn dealloc_td(net: &Net, td: *mut ibv_td) -> i32 {
    // SAFETY: the domain is alive; what is refused stays so.
    unsafe { later(net.ctx).dealloc_td.unwrap()(td) }
}

fn dealloc(net: &Net, pd: *mut ibv_pd) -> i32 {
    // SAFETY: `pd` is alive; what is refused stays so.
    unsafe { (net.v.dealloc_pd)(pd) }
}

#[test]
fn a_parent_domain_is_the_domain_that_it_stands_for() {
    if !is_softs_own("parent domains") {
        return;
    }
    let net = Net::new();
    let td = td(&net);
    let pd = parent(&net, parent_domain_attr(net.pd, td)).unwrap();
    let cq = net.cq(64);
    // The queue pairs are of the parent, the region is of the other: each way round.
    let mut bytes = [0_u8; 64];
    let own = net.mr(&mut bytes[..32], RW);
    let mut other = [0_u8; 64];
    let parents = net.mr_in(pd, &mut other, RW);
    // SAFETY: the domain and the attributes' objects are alive.
    let qp = [net.pd, pd].map(|pd| unsafe { (net.v.create_qp)(pd, &mut net.init_attr(cq)) });
    // SAFETY: both are alive.
    let num = qp.map(|qp| unsafe {
        assert!([net.pd, pd].contains(&(*qp).pd));
        (*qp).qp_num
    });
    let config = ConnectConfig { access: RW, ..ConnectConfig::default() };
    net.connect(qp[0], num[1], config);
    net.connect(qp[1], num[0], config);
    assert_eq!(post_recv(qp[1], 1, &mut [sge(own, 0, 16)]), 0);
    let mut sges = [sge(parents, 0, 16)];
    let mut wr = send_wr(2, ibv_wr_opcode::IBV_WR_SEND, &mut sges, SIGNALED);
    assert_eq!(post_send(qp[0], &mut wr), 0);
    assert!(net.poll(cq, 2).iter().all(|wc| wc.status == "SUCCESS"));
    assert_eq!(dealloc(&net, pd), EBUSY, "a region and a queue pair are in it");
    qp.iter().for_each(|&qp| net.destroy_qp(qp));
    net.dereg(parents);
    net.dereg(own);
    assert_eq!(dealloc(&net, net.pd), EBUSY, "it has a parent domain");
    assert_eq!(dealloc_td(&net, td), EBUSY, "the parent domain names it");
    assert_eq!(dealloc(&net, pd), 0);
    assert_eq!(dealloc_td(&net, td), 0);
    net.destroy_cq(cq);
    net.close();
}

#[test]
fn an_extended_completion_queue_can_be_in_a_parent_domain() {
    if !is_softs_own("parent domains") {
        return;
    }
    let net = Net::new();
    let pd = parent(&net, parent_domain_attr(net.pd, null_mut())).unwrap();
    let create = |pd| {
        let comp_mask = ibv_cq_init_attr_mask::IBV_CQ_INIT_ATTR_MASK_PD.0;
        let mut attr = ibv_cq_init_attr_ex {
            cqe: 4,
            comp_mask,
            parent_domain: pd,
            ..ibv_cq_init_attr_ex::default()
        };
        // SAFETY: the context is open, and the domain alive.
        unsafe { later(net.ctx).create_cq_ex.unwrap()(net.ctx, &mut attr) }
    };
    for wrong in [net.pd, null_mut()] {
        assert!(create(wrong).is_null());
        assert_eq!(errno(), EINVAL);
    }
    let cq = create(pd);
    assert!(!cq.is_null());
    assert_eq!(dealloc(&net, pd), EBUSY);
    net.destroy_cq(cq.cast());
    assert_eq!(dealloc(&net, pd), 0);
    net.close();
}

#[test]
fn domains_that_the_device_does_not_have_are_refused() {
    if !is_softs_own("parent domains") {
        return;
    }
    let (net, other) = (Net::new(), Net::new());
    // SAFETY: the context is open.
    let none = unsafe {
        later(net.ctx).alloc_td.unwrap()(net.ctx, &mut ibv_td_init_attr { comp_mask: 1 })
    };
    assert!(none.is_null());
    let unknown =
        ibv_parent_domain_init_attr { comp_mask: 4, ..parent_domain_attr(net.pd, null_mut()) };
    assert_eq!(parent(&net, unknown), Err(EOPNOTSUPP));
    assert_eq!(parent(&net, parent_domain_attr(null_mut(), null_mut())), Err(EINVAL));
    assert_eq!(parent(&net, parent_domain_attr(other.pd, null_mut())), Err(EINVAL));
    let foreign = td(&other);
    assert_eq!(parent(&net, parent_domain_attr(net.pd, foreign)), Err(EINVAL));
    assert_eq!(dealloc_td(&other, foreign), 0);
    net.close();
    other.close();
}

#[test]
fn the_newer_verb_creates_basic_receive_queues_with_numbers() {
    if !is_softs_own("numbers of shared receive queues") {
        return;
    }
    use ibv_srq_init_attr_mask as Mask;
    let net = Net::new();
    let create = |comp_mask, srq_type, pd| {
        let attr = ibv_srq_attr { max_wr: 5, max_sge: 2, srq_limit: 0 };
        let mut attr = ibv_srq_init_attr_ex { attr, comp_mask, srq_type, pd, ..Default::default() };
        // SAFETY: the context is open, and the domain alive.
        let srq = unsafe { later(net.ctx).create_srq_ex.unwrap()(net.ctx, &mut attr) };
        if srq.is_null() { Err(errno()) } else { Ok((srq, attr.attr.max_wr)) }
    };
    let both = Mask::IBV_SRQ_INIT_ATTR_PD.0 | Mask::IBV_SRQ_INIT_ATTR_TYPE.0;
    let basic = ibv_srq_type::IBV_SRQT_BASIC;
    let no_domain = if is_wired() { EOPNOTSUPP } else { EINVAL };
    assert_eq!(create(both, ibv_srq_type::IBV_SRQT_XRC, net.pd), Err(no_domain));
    assert_eq!(create(both, ibv_srq_type::IBV_SRQT_TM, net.pd), Err(EOPNOTSUPP));
    assert_eq!(create(both | Mask::IBV_SRQ_INIT_ATTR_CQ.0, basic, net.pd), Err(EOPNOTSUPP));
    assert_eq!(create(Mask::IBV_SRQ_INIT_ATTR_TYPE.0, basic, net.pd), Err(EINVAL));
    let mut numbers = Vec::new();
    for _ in 0..2 {
        let (srq, max_wr) = create(both, basic, net.pd).unwrap();
        assert_eq!(max_wr, 8);
        assert_eq!(post_srq_recv(srq, 1, &mut []), 0);
        let mut number = 0;
        // SAFETY: the queue is alive, and destroyed once.
        unsafe {
            assert_eq!(later(net.ctx).get_srq_num.unwrap()(srq, &mut number), 0);
            assert_eq!((net.v.destroy_srq)(srq), 0);
        }
        numbers.push(number);
    }
    assert!(numbers[0] != 0 && numbers[0] != numbers[1], "{numbers:?}");
    net.close();
}
