//! Members of multicast groups, and what they send and get.

use super::*;

pub const UD: ibv_qp_type = ibv_qp_type::IBV_QPT_UD;
pub const GROUP_QPN: u32 = 0x00ff_ffff;
pub const GRH: usize = 40;
/// Bytes of a receive request of a member.
pub const SLOT: usize = 128;

/// The group of an IPv4 address that is `n`-th of those of a process: tests run beside others of
/// the same user, and their groups reach across processes.
pub fn group_of(pid: u32, n: u8) -> ibv_gid {
    let [_, a, b, c] = pid.to_be_bytes();
    ibv_gid { raw: [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 224 + a % 16, b, c, n] }
}

/// The group of an IPv4 address, one for each test: groups are the device's.
pub fn group(n: u8) -> ibv_gid {
    group_of(std::process::id(), n)
}

/// The group of an IPv6 address.
pub fn group_v6(n: u16) -> ibv_gid {
    let mut gid = [0xff, 0x0e, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    gid[8..12].copy_from_slice(&std::process::id().to_be_bytes());
    gid[14..].copy_from_slice(&n.to_be_bytes());
    ibv_gid { raw: gid }
}

pub fn raw(gid: &ibv_gid) -> [u8; 16] {
    // SAFETY: bytes, whichever member was written.
    unsafe { gid.raw }
}

pub fn attach(net: &Net, qp: *mut ibv_qp, gid: ibv_gid, lid: u16) -> c_int {
    // SAFETY: the queue pair is alive.
    unsafe { (net.v.attach_mcast)(qp, &gid, lid) }
}

pub fn detach(net: &Net, qp: *mut ibv_qp, gid: ibv_gid, lid: u16) -> c_int {
    // SAFETY: `qp` is alive.
    unsafe { (net.v.detach_mcast)(qp, &gid, lid) }
}

/// An address handle of a group.
pub fn ah(net: &Net, gid: ibv_gid) -> *mut ibv_ah {
    let mut attr = net.ah_attr();
    attr.grh.dgid = gid;
    attr.grh.traffic_class = 0x5a;
    net.ah_in(net.pd, attr)
}

/// A datagram queue pair with a completion queue and memory of its own.
pub struct GroupMember {
    pub qp: *mut ibv_qp,
    pub cq: *mut ibv_cq,
    pub mr: *mut ibv_mr,
    pub buf: Vec<u8>,
}

impl GroupMember {
    pub fn new(net: &Net) -> GroupMember {
        GroupMember::with(net, QKEY)
    }

    pub fn with(net: &Net, qkey: u32) -> GroupMember {
        let cq = net.cq(256);
        GroupMember::from_qp(net, net.qp_of(UD, cq), cq, qkey)
    }

    pub fn from_qp(net: &Net, qp: *mut ibv_qp, cq: *mut ibv_cq, qkey: u32) -> GroupMember {
        net.connect(qp, 0, ConnectConfig { qkey, ..ConnectConfig::default() });
        let mut buf = vec![0; 64 * SLOT];
        let mr = net.mr(&mut buf, RW);
        GroupMember { qp, cq, mr, buf }
    }

    pub fn num(&self) -> u32 {
        // SAFETY: the queue pair is alive.
        unsafe { (*self.qp).qp_num }
    }

    /// Posts receive requests, each of which knows its place by its number.
    pub fn post_recvs(&self, n: u64) {
        for id in 0..n {
            let mut sges = [sge(self.mr, id as usize * SLOT, SLOT as u32)];
            assert_eq!(post_recv(self.qp, id, &mut sges), 0);
        }
    }

    /// Posts a message to a group.
    pub fn post(&self, ah: *mut ibv_ah, len: u32, imm: Option<u32>) {
        self.post_to(ah, GROUP_QPN, len, imm);
    }

    pub fn post_to(&self, ah: *mut ibv_ah, qpn: u32, len: u32, imm: Option<u32>) {
        let mut sges = [sge(self.mr, 63 * SLOT, len)];
        let mut wr = datagram_wr(7, &mut sges, SIGNALED, (ah, qpn, QKEY));
        if let Some(imm) = imm {
            wr.opcode = ibv_wr_opcode::IBV_WR_SEND_WITH_IMM;
            wr.__bindgen_anon_1.imm_data = imm.to_be();
        }
        assert_eq!(post_send(self.qp, &mut wr), 0);
    }

    /// Sends a message to a group. Unless a network is between, it has arrived where it arrives
    /// when this returns, because the completion is last.
    pub fn send(&self, net: &Net, ah: *mut ibv_ah, len: u32, imm: Option<u32>) {
        self.post(ah, len, imm);
        let done = net.poll(self.cq, 1)[0];
        assert_eq!((done.id, done.status, done.opcode), (7, "SUCCESS", "SEND"));
    }

    pub fn close(self, net: &Net) {
        net.destroy_qp(self.qp);
        net.destroy_cq(self.cq);
        net.dereg(self.mr);
    }
}

/// A member of a group, with receives for eight messages.
pub fn member(net: &Net, group: ibv_gid) -> GroupMember {
    let member = GroupMember::new(net);
    assert_eq!(attach(net, member.qp, group, 0), 0);
    member.post_recvs(8);
    member
}

/// Takes a member out of its group, and ends it.
pub fn end(net: &Net, group: ibv_gid, member: GroupMember) {
    assert_eq!(detach(net, member.qp, group, 0), 0);
    member.close(net);
}
