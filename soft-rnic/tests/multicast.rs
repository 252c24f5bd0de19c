//! Multicast groups: which queue pairs get a copy, what it looks like, and what the verbs refuse.
//!
//! Not on rxe0: groups have soft0's limits.

mod common;

use core::ffi::c_int;
use core::ptr::{null, null_mut};

use common::multicast::*;
use common::*;
use libc::EINVAL;
use soft_rnic::{Faults, NetworkFaults, Simulation};
use verbs_sys::*;

fn is_left_out() -> bool {
    !is_softs_own("the port of another device may not let multicast messages come back")
}

#[test]
fn every_member_gets_a_copy_with_the_group_address() {
    if is_left_out() {
        return;
    }
    let net = Net::new();
    let (to, other) = (ah(&net, group(1)), group(2));
    let mut sender = GroupMember::new(&net);
    let members: Vec<_> = (0..3).map(|_| GroupMember::new(&net)).collect();
    let [stranger, apart] = [(); 2].map(|()| GroupMember::new(&net));
    members.iter().for_each(|member| assert_eq!(attach(&net, member.qp, group(1), 0), 0));
    assert_eq!(attach(&net, apart.qp, other, 0), 0);
    members.iter().chain([&stranger, &apart]).for_each(|member| member.post_recvs(2));
    sender.buf[63 * SLOT..][..5].copy_from_slice(b"hello");
    sender.send(&net, to, 5, Some(9));
    for member in &members {
        let got = net.poll(member.cq, 1);
        assert_eq!(got.len(), 1);
        assert_eq!((got[0].id, got[0].status, got[0].opcode), (0, "SUCCESS", "RECV"));
        assert_eq!((got[0].qp, got[0].src_qp), (member.num(), sender.num()));
        assert_eq!((got[0].len, got[0].imm, got[0].has_grh), (45, Some(9), true));
        assert_eq!(&member.buf[GRH..GRH + 5], b"hello");
        let header = &member.buf[20..GRH];
        assert_eq!((header[0], header[1], header[9]), (0x45, 0x5a, 17), "IPv4 with UDP");
        assert_eq!(&header[12..16], &raw(&net.gid)[12..], "from");
        assert_eq!(&header[16..], &raw(&group(1))[12..], "to");
    }
    assert!(net.poll_now(stranger.cq).is_empty() && net.poll_now(apart.cq).is_empty());
    assert_eq!(detach(&net, apart.qp, other, 0), 0);
    for member in &members {
        assert_eq!(detach(&net, member.qp, group(1), 0), 0);
    }
    sender.send(&net, to, 5, None);
    assert!(members.iter().all(|member| net.poll_now(member.cq).is_empty()), "none is a member");
    members.into_iter().chain([sender, stranger, apart]).for_each(|member| member.close(&net));
    net.destroy_ah(to);
    net.close();
}

#[test]
fn a_group_with_an_ipv6_address_has_a_header_of_ipv6() {
    if is_left_out() {
        return;
    }
    let net = Net::new();
    let [sender, member] = [(); 2].map(|()| GroupMember::new(&net));
    if is_wired() && raw(&net.gid)[..12] == raw(&group(1))[..12] {
        // Packets from an address of IPv4 go to none of IPv6.
        assert_eq!(attach(&net, member.qp, group_v6(1), 0), EINVAL);
        [sender, member].into_iter().for_each(|member| member.close(&net));
        return net.close();
    }
    let to = ah(&net, group_v6(1));
    assert_eq!(attach(&net, member.qp, group_v6(1), 0xc001), 0);
    member.post_recvs(1);
    sender.send(&net, to, 6, None);
    let got = net.poll(member.cq, 1)[0];
    assert_eq!((got.len, got.has_grh), (46, true));
    let header = &member.buf[..GRH];
    assert_eq!(header[..4], [0x65, 0xa0, 0, 0], "version, class, no label");
    // 8 + 12 + 8 of headers, 6 padded to 8, 4 of checksum.
    assert_eq!((&header[4..6], header[6]), (&[0, 40][..], 17));
    assert_eq!((&header[8..24], &header[24..]), (&raw(&net.gid)[..], &raw(&group_v6(1))[..]));
    assert_eq!(detach(&net, member.qp, group_v6(1), 0xc001), 0);
    [sender, member].into_iter().for_each(|member| member.close(&net));
    net.destroy_ah(to);
    net.close();
}

/// A datagram queue pair that does not get what it sends to a group.
fn blocking_own(net: &Net) -> GroupMember {
    let cq = net.cq(256);
    let qp = create_ex(net, cq, UD, ibv_qp_create_flags::IBV_QP_CREATE_BLOCK_SELF_MCAST_LB.0);
    GroupMember::from_qp(net, qp.unwrap(), cq, QKEY)
}

fn create_ex(
    net: &Net,
    cq: *mut ibv_cq,
    kind: ibv_qp_type,
    flags: u32,
) -> Result<*mut ibv_qp, c_int> {
    let plain = net.init_attr(cq);
    // SAFETY: zero is a valid value of every field; the objects are alive.
    let qp = unsafe {
        let mut attr: ibv_qp_init_attr_ex = core::mem::zeroed();
        (attr.send_cq, attr.recv_cq) = (cq, cq);
        (attr.cap, attr.qp_type, attr.pd) = (plain.cap, kind, net.pd);
        attr.comp_mask = ibv_qp_init_attr_mask::IBV_QP_INIT_ATTR_PD.0
            | ibv_qp_init_attr_mask::IBV_QP_INIT_ATTR_CREATE_FLAGS.0;
        attr.create_flags = flags;
        later(net.ctx).create_qp_ex.unwrap()(net.ctx, &mut attr)
    };
    if qp.is_null() { Err(errno()) } else { Ok(qp) }
}

#[test]
fn a_member_gets_its_own_messages_unless_it_was_created_not_to() {
    if is_left_out() {
        return;
    }
    let net = Net::new();
    let to = ah(&net, group(3));
    let members = [GroupMember::new(&net), blocking_own(&net)];
    // The one that gets all copies is the last to get one.
    for member in members.iter().rev() {
        assert_eq!(attach(&net, member.qp, group(3), 0), 0);
        member.post_recvs(4);
    }
    for sender in &members {
        sender.post(to, 1, None);
    }
    // A sender's completion and its copy share a completion queue.
    let sources = |n: usize, all: usize| {
        let got = net.poll(members[n].cq, all);
        let got = got.iter().filter(|wc| wc.opcode == "RECV");
        let mut sources: Vec<_> = got.map(|wc| wc.src_qp).collect();
        sources.sort_unstable();
        sources
    };
    let mut both = [members[0].num(), members[1].num()];
    both.sort_unstable();
    assert_eq!(sources(0, 3), both);
    assert_eq!(sources(1, 2), [members[0].num()]);
    assert!(members.iter().all(|member| net.poll_now(member.cq).is_empty()));
    for member in members {
        assert_eq!(detach(&net, member.qp, group(3), 0), 0);
        member.close(&net);
    }
    net.destroy_ah(to);
    net.close();
}

#[test]
fn flags_of_a_queue_pair_that_are_not_for_it_are_refused() {
    if is_left_out() {
        return;
    }
    let net = Net::new();
    let cq = net.cq(16);
    let own = ibv_qp_create_flags::IBV_QP_CREATE_BLOCK_SELF_MCAST_LB.0;
    let scatter = ibv_qp_create_flags::IBV_QP_CREATE_SCATTER_FCS.0;
    assert_eq!(create_ex(&net, cq, ibv_qp_type::IBV_QPT_RC, own), Err(EINVAL));
    assert_eq!(create_ex(&net, cq, UD, own | scatter), Err(libc::EOPNOTSUPP));
    net.destroy_qp(create_ex(&net, cq, ibv_qp_type::IBV_QPT_RC, 0).unwrap());
    net.destroy_cq(cq);
    net.close();
}

#[test]
fn each_member_drops_messages_by_itself_unknown_to_the_sender() {
    if is_left_out() {
        return;
    }
    let net = Net::new();
    let to = ah(&net, group(4));
    let sender = GroupMember::new(&net);
    let keyed = GroupMember::with(&net, QKEY ^ 1);
    let [unready, short, reset, good] = [(); 4].map(|()| GroupMember::new(&net));
    for member in [&keyed, &unready, &short, &reset, &good] {
        assert_eq!(attach(&net, member.qp, group(4), 0), 0);
    }
    [&keyed, &good, &reset].iter().for_each(|member| member.post_recvs(2));
    assert_eq!(post_recv(short.qp, 0, &mut [sge(short.mr, 0, GRH as u32 + 7)]), 0);
    assert_eq!(net.to_state(reset.qp, ibv_qp_state::IBV_QPS_RESET), 0);
    let violations = net.port().qkey_viol_cntr;
    sender.send(&net, to, 8, Some(1));
    // It is the last to get a copy.
    assert_eq!(net.poll(good.cq, 1)[0].imm, Some(1));
    for member in [&keyed, &unready, &short, &reset] {
        assert!(net.poll_now(member.cq).is_empty());
        assert_ne!(net.state(member.qp), ibv_qp_state::IBV_QPS_ERR);
    }
    // Other tests may count some, too.
    assert!(net.port().qkey_viol_cntr > violations);
    // What was dropped has taken no receive request; a reset has ended no attachment.
    unready.post_recvs(1);
    net.connect(reset.qp, 0, ConnectConfig::default());
    reset.post_recvs(1);
    let key = ibv_qp_attr { qkey: QKEY, ..ibv_qp_attr::default() };
    assert_eq!(net.modify(keyed.qp, key, ibv_qp_attr_mask::IBV_QP_QKEY), 0);
    sender.send(&net, to, 7, Some(2));
    let got = net.poll(good.cq, 1)[0];
    assert_eq!((got.id, got.imm), (1, Some(2)));
    for member in [&keyed, &unready, &short, &reset] {
        let got = net.poll_now(member.cq);
        assert_eq!((got.len(), got[0].id, got[0].imm), (1, 0, Some(2)));
    }
    for member in [keyed, unready, short, reset, good] {
        assert_eq!(detach(&net, member.qp, group(4), 0), 0);
        member.close(&net);
    }
    sender.close(&net);
    net.destroy_ah(to);
    net.close();
}

#[test]
fn a_request_that_fails_at_its_sender_reaches_no_member() {
    if is_left_out() {
        return;
    }
    let net = Net::new();
    let to = ah(&net, group(5));
    let [sender, member] = [(); 2].map(|()| GroupMember::new(&net));
    assert_eq!(attach(&net, member.qp, group(5), 0), 0);
    member.post_recvs(2);
    let mut sges = [sge(sender.mr, 0, 4)];
    sges[0].lkey ^= 1;
    assert_eq!(
        post_send(sender.qp, &mut datagram_wr(1, &mut sges, SIGNALED, (to, GROUP_QPN, QKEY))),
        0
    );
    assert_eq!(net.poll(sender.cq, 1)[0].status, "LOC_PROT");
    assert!(net.poll_now(member.cq).is_empty());
    assert_eq!(net.to_state(sender.qp, ibv_qp_state::IBV_QPS_RTS), 0);
    // A number that is no group's leads nowhere, even a member's.
    sender.post_to(to, member.num(), 4, None);
    assert_eq!(net.poll(sender.cq, 1)[0].status, "SUCCESS");
    assert!(net.poll_now(member.cq).is_empty());
    sender.send(&net, to, 4, None);
    assert_eq!(net.poll(member.cq, 1)[0].id, 0);
    assert_eq!(detach(&net, member.qp, group(5), 0), 0);
    [sender, member].into_iter().for_each(|member| member.close(&net));
    net.destroy_ah(to);
    net.close();
}

#[test]
fn a_list_goes_to_groups_and_queue_pairs_in_turn() {
    if is_left_out() {
        return;
    }
    let net = Net::new();
    let (to, one) = (ah(&net, group(6)), net.ah());
    let sender = GroupMember::new(&net);
    let members = [(); 2].map(|()| GroupMember::new(&net));
    for member in &members {
        assert_eq!(attach(&net, member.qp, group(6), 0), 0);
        member.post_recvs(8);
    }
    let numbers = members.each_ref().map(GroupMember::num);
    let way = |n: usize| {
        if n.is_multiple_of(3) { (one, numbers[0], QKEY) } else { (to, GROUP_QPN, QKEY) }
    };
    let mut wrs: Vec<_> = (0..7)
        .map(|n| {
            let mut wr = datagram_wr(n as u64, &mut [], SIGNALED, way(n));
            wr.opcode = ibv_wr_opcode::IBV_WR_SEND_WITH_IMM;
            wr.__bindgen_anon_1.imm_data = (n as u32).to_be();
            wr
        })
        .collect();
    for n in 0..6 {
        wrs[n].next = &mut wrs[n + 1];
    }
    assert_eq!(post_send(sender.qp, &mut wrs[0]), 0);
    let done: Vec<_> = net.poll(sender.cq, 7).iter().map(|wc| (wc.id, wc.status)).collect();
    assert_eq!(done, (0..7).map(|n| (n, "SUCCESS")).collect::<Vec<_>>());
    let numbers = |(member, n): (&GroupMember, usize)| {
        let mut numbers: Vec<_> = net.poll(member.cq, n).iter().map(|wc| wc.imm.unwrap()).collect();
        if is_wired() {
            // Those to groups overtake the others there, and are overtaken.
            numbers.sort_unstable();
        }
        numbers
    };
    let got = [(&members[0], 7), (&members[1], 4)].map(numbers);
    assert_eq!(got, [vec![0, 1, 2, 3, 4, 5, 6], vec![1, 2, 4, 5]]);
    for member in members {
        assert_eq!(detach(&net, member.qp, group(6), 0), 0);
        member.close(&net);
    }
    sender.close(&net);
    [to, one].iter().for_each(|ah| net.destroy_ah(*ah));
    net.close();
}

#[test]
fn members_that_share_a_receive_queue_take_a_request_each() {
    if is_left_out() {
        return;
    }
    let net = Net::new();
    let (to, cq) = (ah(&net, group(7)), net.cq(64));
    let mut attr = ibv_srq_init_attr::default();
    (attr.attr.max_wr, attr.attr.max_sge) = (16, 1);
    // SAFETY: the domain is alive.
    let srq = unsafe { (net.v.create_srq)(net.pd, &mut attr) };
    let shares = ibv_qp_init_attr { srq, qp_type: UD, ..net.init_attr(cq) };
    let qps = [net.qp_with(shares), net.qp_with(shares)];
    let sender = GroupMember::new(&net);
    for qp in qps {
        net.connect(qp, 0, ConnectConfig::default());
        assert_eq!(attach(&net, qp, group(7), 0), 0);
    }
    for id in 0..3 {
        let mut sges = [sge(sender.mr, SLOT * id as usize, SLOT as u32)];
        assert_eq!(post_srq_recv(srq, id, &mut sges), 0);
    }
    sender.send(&net, to, 1, None);
    let mut got: Vec<_> = net.poll(cq, 2).iter().map(|wc| (wc.id, wc.qp)).collect();
    got.sort_unstable();
    assert_eq!(got.iter().map(|(id, _)| *id).collect::<Vec<_>>(), [0, 1]);
    assert_ne!(got[0].1, got[1].1);
    for qp in qps {
        assert_eq!(detach(&net, qp, group(7), 0), 0);
        net.destroy_qp(qp);
    }
    // SAFETY: nothing uses it any more.
    assert_eq!(unsafe { (net.v.destroy_srq)(srq) }, 0);
    sender.close(&net);
    net.destroy_cq(cq);
    net.destroy_ah(to);
    net.close();
}

#[test]
fn the_verbs_judge_as_the_kernel_does() {
    if is_left_out() {
        return;
    }
    let net = Net::new();
    let to = ah(&net, group(8));
    let [sender, member] = [(); 2].map(|()| GroupMember::new(&net));
    // SAFETY: NULL, or alive.
    unsafe {
        for verb in [net.v.attach_mcast, net.v.detach_mcast] {
            assert_eq!(verb(member.qp, null(), 0), EINVAL);
            assert_eq!(verb(null_mut(), &group(8), 0), EINVAL);
        }
    }
    let mut mapped = raw(&group(8));
    (mapped[12], mapped[9]) = (240, 0);
    let v4 = ibv_gid { raw: mapped };
    (mapped[12], mapped[9]) = (239, 1);
    for gid in [net.gid, v4, ibv_gid { raw: mapped }, ibv_gid { raw: [0; 16] }] {
        assert_eq!(attach(&net, member.qp, gid, 0), EINVAL, "{:?} is no group", raw(&gid));
    }
    for kind in [ibv_qp_type::IBV_QPT_RC, ibv_qp_type::IBV_QPT_UC] {
        let connected = net.qp_of(kind, member.cq);
        assert_eq!(attach(&net, connected, group(8), 0), EINVAL);
        assert_eq!(detach(&net, connected, group(8), 0), EINVAL);
        net.destroy_qp(connected);
    }
    assert_eq!(detach(&net, member.qp, group(8), 0), EINVAL, "not attached");
    // Twice is once; another LID is another attachment, to the same group.
    member.post_recvs(4);
    for lid in [0, 0, 5] {
        assert_eq!(attach(&net, member.qp, group(8), lid), 0);
    }
    sender.send(&net, to, 1, None);
    assert_eq!(net.poll(member.cq, 1).len(), 1);
    assert_eq!(detach(&net, member.qp, group(8), 6), EINVAL);
    assert_eq!(detach(&net, member.qp, group(8), 0), 0);
    assert_eq!(detach(&net, member.qp, group(8), 0), EINVAL);
    sender.send(&net, to, 1, None);
    assert_eq!(net.poll(member.cq, 1).len(), 1, "a member by the other LID");
    // SAFETY: the queue pair is alive, and stays so.
    assert_eq!(unsafe { (net.v.destroy_qp)(member.qp) }, libc::EBUSY);
    sender.send(&net, to, 1, None);
    assert_eq!(net.poll(member.cq, 1).len(), 1, "a refusal changes nothing");
    assert_eq!(detach(&net, member.qp, group(8), 5), 0);
    sender.send(&net, to, 1, None);
    assert!(net.poll_now(member.cq).is_empty());
    // In any state.
    let fresh = net.qp_of(UD, member.cq);
    assert_eq!(attach(&net, fresh, group(8), 0), 0);
    assert_eq!(detach(&net, fresh, group(8), 0), 0);
    net.destroy_qp(fresh);
    [sender, member].into_iter().for_each(|member| member.close(&net));
    net.destroy_ah(to);
    net.close();
}

/// On a device of its own: groups are the device's.
#[test]
fn groups_members_and_attachments_have_the_reported_limits() {
    if is_left_out() {
        return;
    }
    let simulation = Simulation::new(1, Faults::default());
    let net = Net::on(soft_rnic::table(), simulation.name());
    let mut limit = ibv_device_attr::default();
    // SAFETY: the context is open.
    assert_eq!(unsafe { (net.v.query_device)(net.ctx, &mut limit) }, 0);
    let (groups, members) = (limit.max_mcast_grp, limit.max_mcast_qp_attach);
    assert!(groups > 0 && members > 0);
    assert_eq!(limit.max_total_mcast_qp_attach, groups * members);
    let cq = net.cq(16);
    let mut attr = net.init_attr(cq);
    attr.cap = ibv_qp_cap { max_send_wr: 1, max_recv_wr: 1, ..attr.cap };
    attr.qp_type = UD;
    let qps: Vec<_> = (0..=members).map(|_| net.qp_with(attr)).collect();
    let (last, qps) = qps.split_last().unwrap();
    for qp in qps {
        assert_eq!(attach(&net, *qp, group(0), 0), 0);
    }
    assert_eq!(attach(&net, *last, group(0), 0), libc::ENOMEM, "members of a group");
    assert_eq!(attach(&net, qps[0], group(0), 0), 0, "a member already");
    // SAFETY: the queue pair is alive.
    assert_eq!(unsafe { (net.v.destroy_qp)(*last) }, 0, "the refusal has changed nothing");
    let mut made = Vec::new();
    for qp in qps {
        // All but the group that is there.
        while made.len() < groups as usize - 1 {
            let gid = group_v6(1 + made.len() as u16);
            if attach(&net, *qp, gid, 0) != 0 {
                break;
            }
            made.push((*qp, gid));
        }
    }
    assert_eq!(made.len(), groups as usize - 1);
    let (first, spare) = (qps[0], qps[members as usize - 1]);
    assert_eq!(attach(&net, spare, group_v6(groups as u16), 0), libc::ENOMEM, "groups");
    assert_eq!(attach(&net, spare, group_v6(1), 0), 0, "a group that exists");
    assert_eq!(attach(&net, first, group_v6(groups as u16 - 1), 0), libc::ENOMEM, "attachments");
    assert_eq!(detach(&net, first, group_v6(1), 0), 0);
    assert_eq!(attach(&net, first, group_v6(groups as u16 - 1), 0), 0);
    made.remove(0);
    let others = [(spare, group_v6(1)), (first, group_v6(groups as u16 - 1))];
    made.extend(qps.iter().map(|qp| (*qp, group(0))).chain(others));
    made.iter().for_each(|(qp, gid)| assert_eq!(detach(&net, *qp, *gid, 0), 0));
    qps.iter().for_each(|qp| net.destroy_qp(*qp));
    net.destroy_cq(cq);
    net.close();
}

/// Returns the numbers that two members get of `n` messages, in a simulation.
fn simulated(seed: u64, network: NetworkFaults, n: u32) -> ([Vec<u32>; 2], Simulation) {
    let simulation = Simulation::new(seed, Faults { network, delay: 0.1, ..Faults::default() });
    let net = Net::on(soft_rnic::table(), simulation.name());
    let to = ah(&net, group(0));
    let sender = GroupMember::new(&net);
    let members = [(); 2].map(|()| GroupMember::new(&net));
    for member in &members {
        assert_eq!(attach(&net, member.qp, group(0), 0), 0);
        member.post_recvs(63);
    }
    for number in 0..n {
        sender.send(&net, to, 4, Some(number));
    }
    while simulation.step() {}
    let got = members.each_ref().map(|member| {
        let got = core::iter::repeat_with(|| net.poll_now(member.cq));
        let got = got.take_while(|got| !got.is_empty()).flatten();
        got.map(|wc| wc.imm.unwrap()).collect()
    });
    for member in members {
        assert_eq!(detach(&net, member.qp, group(0), 0), 0);
        member.close(&net);
    }
    sender.close(&net);
    net.destroy_ah(to);
    net.close();
    (got, simulation)
}

#[test]
fn a_network_fault_strikes_a_message_for_all_members() {
    if is_left_out() {
        return;
    }
    const N: u32 = 60;
    let loss = NetworkFaults { loss: 0.3, ..NetworkFaults::default() };
    let ([one, other], simulation) = simulated(3, loss, N);
    assert_eq!(one, other);
    assert!(one.is_sorted_by(|a, b| a < b));
    assert_eq!(one.len() as u64 + simulation.stats().lost, N.into());
    assert!((1..N as usize).contains(&one.len()), "some are lost: {one:?}");
    assert_eq!(simulated(3, loss, N).0, [one.clone(), other], "the same seed");
    assert_ne!(simulated(4, loss, N).0[0], one, "another seed");
    let twice = NetworkFaults { duplication: 1.0, ..NetworkFaults::default() };
    assert_eq!(simulated(5, twice, 3).0, [[0, 0, 1, 1, 2, 2], [0, 0, 1, 1, 2, 2]]);
    let late = NetworkFaults { reordering: 0.5, ..NetworkFaults::default() };
    let ([mut one, other], _) = simulated(6, late, N);
    assert_eq!(one, other);
    assert!(!one.is_sorted());
    one.sort_unstable();
    assert_eq!(one, (0..N).collect::<Vec<_>>(), "each once");
}

#[test]
fn messages_race_with_members_that_come_and_go() {
    if is_left_out() {
        return;
    }
    const MESSAGES: usize = 2_000;
    let net = Net::new();
    let to = ah(&net, group(9));
    let senders = [(); 2].map(|()| GroupMember::new(&net));
    let stays = GroupMember::new(&net);
    assert_eq!(attach(&net, stays.qp, group(9), 0), 0);
    std::thread::scope(|scope| {
        for sender in &senders {
            let (sender, to, net) = (SharedObject(sender), SharedObject(to), &net);
            scope.spawn(move || {
                let (sender, to) = (sender.get(), to.get());
                (0..MESSAGES).for_each(|_| sender.send(net, to, 8, None));
            });
        }
        for _ in 0..100 {
            let comes = GroupMember::new(&net);
            assert_eq!(attach(&net, comes.qp, group(9), 0), 0);
            comes.post_recvs(63);
            assert_eq!(detach(&net, comes.qp, group(9), 0), 0);
            comes.close(&net);
        }
    });
    // Where a message is not there as soon as it is sent, those from before may take the first
    // receive requests.
    let mut rounds = 0..2 * MESSAGES;
    loop {
        stays.post_recvs(1);
        senders[0].send(&net, to, 8, Some(1));
        if net.poll(stays.cq, 1)[0].imm == Some(1) {
            break;
        }
        assert!(rounds.next().is_some(), "there were no more from before");
    }
    assert_eq!(detach(&net, stays.qp, group(9), 0), 0);
    senders.into_iter().chain([stays]).for_each(|member| member.close(&net));
    net.destroy_ah(to);
    net.close();
}

/// An object that any thread may use.
struct SharedObject<T>(T);

// SAFETY: verbs may be called from any thread.
unsafe impl<T> Send for SharedObject<T> {}

impl<T> SharedObject<T> {
    fn get(self) -> T {
        self.0
    }
}
