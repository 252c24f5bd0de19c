//! Capabilities: what a device says that it has can be made, and what it does not say is refused.
//!
//! Only on soft0: it makes the other devices itself.

mod common;

use core::ffi::c_int;
use core::ptr::null_mut;
use std::time::Duration;

use common::xrc::{close_xrcd, create_qp_ex, create_recv, create_srq, open_xrcd, srq_attr};
use common::*;
use libc::{EINVAL, EOPNOTSUPP};
use verbs_sys::*;

use ibv_device_cap_flags as Cap;
use ibv_qp_init_attr_mask as InitMask;

/// A device of each kind.
fn devices() -> [Net; 3] {
    let distant = soft_rnic::distant(Duration::from_micros(5));
    let wired = wired::list("127.0.0.199");
    ["soft0", &distant, &wired].map(|name| Net::on(soft_rnic::table(), name))
}

/// Capabilities and limits that a device reports.
struct ReportedAttr {
    plain: ibv_device_attr,
    more: ibv_device_attr_ex,
}

impl ReportedAttr {
    fn query(net: &Net) -> ReportedAttr {
        // SAFETY: integers all; the context is open.
        unsafe {
            let mut more: ibv_device_attr_ex = core::mem::zeroed();
            let query = later(net.ctx).query_device_ex.unwrap();
            let size = size_of::<ibv_device_attr_ex>();
            assert_eq!(query(net.ctx, core::ptr::null(), &mut more, size), 0);
            ReportedAttr { plain: more.orig_attr, more }
        }
    }

    fn has(&self, flag: Cap) -> bool {
        self.plain.device_cap_flags & flag.0 != 0
    }

    fn has_more(&self, bit: u32) -> bool {
        self.more.device_cap_flags_ex & 1 << bit != 0
    }
}

/// A call's answer.
fn code(error: c_int) -> Result<(), c_int> {
    if error == 0 { Ok(()) } else { Err(error) }
}

/// The result of a call that makes an object, which is destroyed again.
fn made<T>(object: *mut T, destroy: impl FnOnce(*mut T) -> c_int) -> Result<(), c_int> {
    if object.is_null() {
        return Err(errno());
    }
    assert_eq!(destroy(object), 0);
    Ok(())
}

/// Asserts that a capability and what can be made go together.
fn agrees(net: &Net, what: &str, is_said: bool, done: Result<(), c_int>) {
    // SAFETY: the context is open.
    let device = unsafe { core::ffi::CStr::from_ptr((net.v.get_device_name)((*net.ctx).device)) };
    match done {
        Ok(()) => assert!(is_said, "{device:?} has {what}, and does not say so"),
        Err(error) => {
            assert!(!is_said, "{device:?} says that it has {what}: {error}");
            assert!([EINVAL, EOPNOTSUPP].contains(&error), "{device:?}, {what}: {error}");
        }
    }
}

/// A queue pair that is made with these attributes.
fn qp_ex(net: &Net, change: impl FnOnce(&mut ibv_qp_init_attr_ex)) -> Result<(), c_int> {
    let cq = net.cq(16);
    let mut attr = ibv_qp_init_attr_ex {
        send_cq: cq,
        recv_cq: cq,
        cap: net.init_attr(cq).cap,
        qp_type: ibv_qp_type::IBV_QPT_RC,
        comp_mask: InitMask::IBV_QP_INIT_ATTR_PD.0,
        pd: net.pd,
        ..ibv_qp_init_attr_ex::default()
    };
    change(&mut attr);
    let done = create_qp_ex(net.ctx, attr).map(|qp| net.destroy_qp(qp));
    net.destroy_cq(cq);
    done
}

fn with_ops(net: &Net, ops: u64) -> Result<(), c_int> {
    qp_ex(net, |attr| {
        attr.comp_mask |= InitMask::IBV_QP_INIT_ATTR_SEND_OPS_FLAGS.0;
        attr.send_ops_flags = ops;
    })
}

fn with_flags(net: &Net, flags: ibv_qp_create_flags) -> Result<(), c_int> {
    qp_ex(net, |attr| {
        attr.comp_mask |= InitMask::IBV_QP_INIT_ATTR_CREATE_FLAGS.0;
        attr.create_flags = flags.0;
    })
}

/// A queue pair of a kind, by the older verb.
fn qp_of(net: &Net, qp_type: ibv_qp_type) -> Result<(), c_int> {
    let cq = net.cq(16);
    let mut attr = ibv_qp_init_attr { qp_type, ..net.init_attr(cq) };
    // SAFETY: the attributes' objects are alive.
    let qp = unsafe { (net.v.create_qp)(net.pd, &mut attr) };
    let done = made(qp, |qp| {
        net.destroy_qp(qp);
        0
    });
    net.destroy_cq(cq);
    done
}

#[test]
fn xrc_is_there_where_it_is_said() {
    for net in devices() {
        let is_said = ReportedAttr::query(&net).has(Cap::IBV_DEVICE_XRC);
        assert!(is_said || ReportedAttr::query(&net).more.xrc_odp_caps == 0);
        let xrcd = open_xrcd(net.ctx, -1, libc::O_CREAT);
        agrees(&net, "an XRC domain", is_said, xrcd.map(drop));
        let (domain, cq) = (xrcd.unwrap_or(null_mut()), net.cq(16));
        let srq = create_srq(net.ctx, srq_attr(net.pd, domain, cq));
        let recv = create_recv(net.ctx, domain);
        let mut attr = ibv_qp_open_attr {
            comp_mask: 0b1011,
            qp_num: recv.map_or(0, qp_num),
            xrcd: domain,
            qp_context: null_mut(),
            qp_type: ibv_qp_type::IBV_QPT_XRC_RECV,
        };
        // SAFETY: the context is open; each object is destroyed once.
        unsafe {
            let opened = later(net.ctx).open_qp.unwrap()(net.ctx, &mut attr);
            let is_opened = made(opened, |qp| (net.v.destroy_qp)(qp));
            agrees(&net, "a queue pair that is opened", is_said, is_opened);
            agrees(&net, "an XRC receive queue", is_said, srq.map(drop));
            agrees(&net, "an XRC receive queue pair", is_said, recv.map(drop));
            let _ = srq.map(|srq| assert_eq!((net.v.destroy_srq)(srq), 0));
        }
        let _ = recv.map(|qp| net.destroy_qp(qp));
        let _ = xrcd.map(|xrcd| assert_eq!(close_xrcd(xrcd), 0));
        agrees(&net, "XRC's sending end", is_said, qp_of(&net, ibv_qp_type::IBV_QPT_XRC_SEND));
        let send = qp_ex(&net, |attr| attr.qp_type = ibv_qp_type::IBV_QPT_XRC_SEND);
        agrees(&net, "XRC's sending end, by the newer verb", is_said, send);
        net.destroy_cq(cq);
        net.close();
    }
}

#[test]
fn objects_of_capabilities_are_there_where_they_are_said() {
    for net in devices() {
        let (said, v, ops) = (ReportedAttr::query(&net), net.v, later(net.ctx));
        let mut bytes = vec![0_u8; 4_096];
        // SAFETY: the memory is alive as long as the region.
        let reg = |access: u32, at: *mut u8, length: usize| unsafe {
            let mr = (v.reg_mr)(net.pd, at.cast(), length, access as c_int);
            made(mr, |mr| (v.dereg_mr)(mr))
        };
        // SAFETY: the domain is alive; the window is destroyed once.
        let window = |kind| unsafe { made(ibv_alloc_mw(net.pd, kind), |mw| ibv_dealloc_mw(mw)) };
        let has_type_1 = said.has(Cap::IBV_DEVICE_MEM_WINDOW);
        agrees(&net, "windows of type 1", has_type_1, window(common::mw::TYPE_1));
        let of_type_2 = [Cap::IBV_DEVICE_MEM_WINDOW_TYPE_2A, Cap::IBV_DEVICE_MEM_WINDOW_TYPE_2B];
        let has_type_2 = of_type_2.iter().any(|flag| said.has(*flag));
        agrees(&net, "windows of type 2", has_type_2, window(common::mw::TYPE_2));
        let on_demand = ibv_access_flags::IBV_ACCESS_ON_DEMAND.0 | RW;
        let general = said.more.odp_caps.general_caps;
        let explicit = reg(on_demand, bytes.as_mut_ptr(), 4_096);
        agrees(&net, "on-demand regions", general & 1 != 0, explicit);
        let implicit = reg(on_demand, null_mut(), usize::MAX);
        agrees(&net, "implicit regions", general & 2 != 0, implicit);
        // SAFETY: the context is open; each object is destroyed once.
        unsafe {
            let mut attr = ibv_alloc_dm_attr { length: 64, log_align_req: 0, comp_mask: 0 };
            let dm = ops.alloc_dm.unwrap()(net.ctx, &mut attr);
            let done = made(dm, |dm| ops.free_dm.unwrap()(dm));
            agrees(&net, "device memory", said.more.max_dm_size != 0, done);
            let mut attr = ibv_cq_init_attr_ex {
                cqe: 16,
                wc_flags: ibv_create_cq_wc_flags::IBV_WC_EX_WITH_COMPLETION_TIMESTAMP.0.into(),
                ..ibv_cq_init_attr_ex::default()
            };
            let cq = ops.create_cq_ex.unwrap()(net.ctx, &mut attr);
            let done = made(cq, |cq| (v.destroy_cq)(cq.cast()));
            agrees(&net, "times of completions", said.more.completion_timestamp_mask != 0, done);
            let cq = net.cq(16);
            let mut moderation = ibv_modify_cq_attr {
                attr_mask: ibv_cq_attr_mask::IBV_CQ_ATTR_MODERATE.0,
                moderate: ibv_moderate_cq { cq_count: 1, cq_period: 1 },
            };
            let done = code(ops.modify_cq.unwrap()(cq, &mut moderation));
            agrees(&net, "moderation", said.more.cq_mod_caps.max_cq_count != 0, done);
            net.destroy_cq(cq);
            let mut attr = ibv_srq_init_attr_ex {
                attr: ibv_srq_attr { max_wr: 1, max_sge: 1, srq_limit: 0 },
                comp_mask: ibv_srq_init_attr_mask::IBV_SRQ_INIT_ATTR_TYPE.0
                    | ibv_srq_init_attr_mask::IBV_SRQ_INIT_ATTR_PD.0,
                srq_type: ibv_srq_type::IBV_SRQT_TM,
                pd: net.pd,
                ..ibv_srq_init_attr_ex::default()
            };
            let srq = ops.create_srq_ex.unwrap()(net.ctx, &mut attr);
            let done = made(srq, |srq| (v.destroy_srq)(srq));
            agrees(&net, "tag matching", said.more.tm_caps.max_num_tags != 0, done);
        }
        let has_queues = ops.create_wq.is_some() || ops.create_rwq_ind_table.is_some();
        assert_eq!(has_queues, said.more.max_wq_type_rq != 0, "work queues");
        assert_eq!(ops.ibv_create_flow.is_some(), said.has(Cap::IBV_DEVICE_MANAGED_FLOW_STEERING));
        let paces = said.more.packet_pacing_caps.qp_rate_limit_max != 0;
        assert_eq!(ops.modify_qp_rate_limit.is_some(), paces);
        net.close();
    }
}

#[test]
fn queue_pairs_have_what_is_said() {
    for net in devices() {
        let said = ReportedAttr::query(&net);
        let ops = ibv_qp_create_send_ops_flags::IBV_QP_EX_WITH_ATOMIC_WRITE.0.into();
        agrees(&net, "atomic writes", said.has_more(40), with_ops(&net, ops));
        // The kernel's FLUSH_GLOBAL and FLUSH_PERSISTENT; the operation of a later header.
        let has_flush = said.has_more(38) || said.has_more(39);
        agrees(&net, "FLUSH", has_flush, with_ops(&net, 1 << 11));
        let swap = ibv_qp_create_send_ops_flags::IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP.0.into();
        let has_atomics = said.plain.atomic_cap != ibv_atomic_cap::IBV_ATOMIC_NONE;
        agrees(&net, "atomics", has_atomics, with_ops(&net, swap));
        let tso = ibv_qp_create_send_ops_flags::IBV_QP_EX_WITH_TSO.0.into();
        agrees(&net, "segmentation", said.more.tso_caps.max_tso != 0, with_ops(&net, tso));
        let header = qp_ex(&net, |attr| {
            attr.comp_mask |= InitMask::IBV_QP_INIT_ATTR_MAX_TSO_HEADER.0;
            attr.max_tso_header = 64;
        });
        agrees(&net, "headers of segments", said.more.tso_caps.max_tso != 0, header);
        let hash = qp_ex(&net, |attr| attr.comp_mask |= InitMask::IBV_QP_INIT_ATTR_RX_HASH.0);
        agrees(&net, "hashing", said.more.rss_caps.rx_hash_function != 0, hash);
        let scatter = with_flags(&net, ibv_qp_create_flags::IBV_QP_CREATE_SCATTER_FCS);
        agrees(&net, "checksums of frames", said.has_more(34), scatter);
        let padding = with_flags(&net, ibv_qp_create_flags::IBV_QP_CREATE_PCI_WRITE_END_PADDING);
        agrees(&net, "padding", said.has_more(36), padding);
        let raw = qp_of(&net, ibv_qp_type::IBV_QPT_RAW_PACKET);
        agrees(&net, "raw packets", said.plain.max_raw_ethy_qp != 0, raw);
        net.close();
    }
}

/// Changes and requests of a queue pair that is connected to itself.
#[test]
fn changes_and_requests_are_taken_where_they_are_said() {
    use ibv_qp_attr_mask as Mask;
    for net in devices() {
        let (said, v) = (ReportedAttr::query(&net), net.v);
        let mut attr = ibv_srq_init_attr {
            srq_context: null_mut(),
            attr: ibv_srq_attr { max_wr: 4, max_sge: 1, srq_limit: 0 },
        };
        // SAFETY: the domain is alive; the queue is destroyed once.
        let resized = unsafe {
            let srq = (v.create_srq)(net.pd, &mut attr);
            attr.attr.max_wr = 8;
            let mask = ibv_srq_attr_mask::IBV_SRQ_MAX_WR.0 as c_int;
            let resized = code((v.modify_srq)(srq, &mut attr.attr, mask));
            assert_eq!((v.destroy_srq)(srq), 0);
            resized
        };
        agrees(&net, "resizing of shared queues", said.has(Cap::IBV_DEVICE_SRQ_RESIZE), resized);
        let cq = net.cq(64);
        let qp = net.qp(cq);
        net.connect(qp, qp_num(qp), ConnectConfig::default());
        let now = net.query(qp);
        let change = |mask: Mask| code(net.modify(qp, now, mask));
        let resizes = said.has(Cap::IBV_DEVICE_RESIZE_MAX_WR);
        agrees(&net, "resizing of queue pairs", resizes, change(Mask::IBV_QP_CAP));
        let migrates = said.has(Cap::IBV_DEVICE_AUTO_PATH_MIG);
        agrees(&net, "another path", migrates, change(Mask::IBV_QP_ALT_PATH));
        let paces = said.more.packet_pacing_caps.qp_rate_limit_max != 0;
        agrees(&net, "rate limits", paces, change(Mask::IBV_QP_RATE_LIMIT));
        let mut bytes = [0; 64];
        let mr = net.mr(&mut bytes, RW);
        let mut sges = [sge(mr, 0, 8)];
        let checksums = ibv_send_flags::IBV_SEND_IP_CSUM;
        let has_checksums = said.has(Cap::IBV_DEVICE_RC_IP_CSUM);
        for opcode in [ibv_wr_opcode::IBV_WR_SEND, ibv_wr_opcode::IBV_WR_RDMA_WRITE] {
            let mut wr = send_wr(1, opcode, &mut sges, checksums);
            // A receive request makes the fast path take a SEND.
            assert_eq!(post_recv(qp, 1, &mut [sge(mr, 8, 8)]), 0);
            let posted = code(post_send(qp, &mut wr));
            agrees(&net, "checksums of requests", has_checksums, posted);
        }
        let mut segments = send_wr(1, ibv_wr_opcode::IBV_WR_TSO, &mut sges, UNSIGNALED);
        let posted = code(post_send(qp, &mut segments));
        agrees(&net, "segmentation", said.more.tso_caps.max_tso != 0, posted);
        net.destroy_qp(qp);
        net.dereg(mr);
        net.destroy_cq(cq);
        net.close();
    }
}

/// One more than the device says.
#[test]
fn nothing_exceeds_what_is_said() {
    for net in devices() {
        let (ReportedAttr { plain: most, .. }, v) = (ReportedAttr::query(&net), net.v);
        let cq = net.cq(16);
        let more = |n: c_int| n as u32 + 1;
        let refused = |what: &str, done: Result<(), c_int>| agrees(&net, what, false, done);
        let with_cap = |change: &dyn Fn(&mut ibv_qp_cap)| {
            let mut attr = net.init_attr(cq);
            change(&mut attr.cap);
            // SAFETY: the attributes' objects are alive.
            unsafe { made((v.create_qp)(net.pd, &mut attr), |qp| (v.destroy_qp)(qp)) }
        };
        refused("send requests", with_cap(&|cap| cap.max_send_wr = more(most.max_qp_wr)));
        refused("receive requests", with_cap(&|cap| cap.max_recv_wr = more(most.max_qp_wr)));
        refused("pieces to send", with_cap(&|cap| cap.max_send_sge = more(most.max_sge)));
        refused("pieces to receive", with_cap(&|cap| cap.max_recv_sge = more(most.max_sge)));
        let srq = |max_wr, max_sge| {
            let attr = ibv_srq_attr { max_wr, max_sge, srq_limit: 0 };
            let mut attr = ibv_srq_init_attr { srq_context: null_mut(), attr };
            // SAFETY: the domain is alive.
            unsafe { made((v.create_srq)(net.pd, &mut attr), |srq| (v.destroy_srq)(srq)) }
        };
        refused("shared requests", srq(more(most.max_srq_wr), 1));
        refused("pieces of shared requests", srq(1, more(most.max_srq_sge)));
        // SAFETY: the context is open.
        unsafe {
            let cq = (v.create_cq)(net.ctx, most.max_cqe + 1, null_mut(), null_mut(), 0);
            refused("completions", made(cq, |cq| (v.destroy_cq)(cq)));
            let vectors = (*net.ctx).num_comp_vectors;
            let cq = (v.create_cq)(net.ctx, 16, null_mut(), null_mut(), vectors);
            refused("completion vectors", made(cq, |cq| (v.destroy_cq)(cq)));
            let mut port = ibv_port_attr::default();
            let beyond = most.phys_port_cnt + 1;
            refused("ports", code(ibv_query_port(&v, net.ctx, beyond, &mut port)));
        }
        let qp = net.qp(cq);
        let (mut init, mut rtr, mut rts) = net.steps(qp_num(qp), ConnectConfig::default());
        init.0.pkey_index = most.max_pkeys;
        refused("partition keys", code(net.modify(qp, init.0, init.1)));
        init.0.pkey_index = 0;
        assert_eq!(net.modify(qp, init.0, init.1), 0);
        let reads = most.max_qp_rd_atom as u8 + 1;
        rtr.0.max_dest_rd_atomic = reads;
        refused("reads to answer", code(net.modify(qp, rtr.0, rtr.1)));
        rtr.0.max_dest_rd_atomic = 1;
        rtr.0.ah_attr.grh.sgid_index = net.port().gid_tbl_len as u8;
        refused("GIDs", code(net.modify(qp, rtr.0, rtr.1)));
        rtr.0.ah_attr.grh.sgid_index = 0;
        assert_eq!(net.modify(qp, rtr.0, rtr.1), 0);
        rts.0.max_rd_atomic = reads;
        refused("reads", code(net.modify(qp, rts.0, rts.1)));
        net.destroy_qp(qp);
        net.destroy_cq(cq);
        net.close();
    }
}
