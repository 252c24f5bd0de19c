//! The receives of a shared queue lie in the queue's domain, whichever queue pairs take them.
//!
//! Not on rxe0: rxe looks for their buffers in the domain of the queue pair.

mod common;

use core::ptr::null_mut;

use common::mw::post_list;
use common::*;
use verbs_sys::*;

const LEN: usize = 64;
/// A datagram's header.
const GRH: usize = 40;
/// Bytes of each receive.
const ROOM: usize = 128;
const ON_DEMAND: u32 = ibv_access_flags::IBV_ACCESS_ON_DEMAND.0;

/// Two queue pairs of one domain; the second takes its receives from a shared queue of another.
struct DomainEnds {
    p: QpPair,
    other: *mut ibv_pd,
    srq: *mut ibv_srq,
}

impl DomainEnds {
    fn new(kind: ibv_qp_type) -> DomainEnds {
        let net = Net::new();
        let mut attr = ibv_srq_init_attr {
            srq_context: null_mut(),
            attr: ibv_srq_attr { max_wr: 64, max_sge: 2, srq_limit: 0 },
        };
        // SAFETY: the context is open.
        let (other, srq) = unsafe {
            let other = (net.v.alloc_pd)(net.ctx);
            (other, (net.v.create_srq)(other, &mut attr))
        };
        assert!(!srq.is_null());
        let cq = [net.cq(256), net.cq(256)];
        let shared = ibv_qp_init_attr { qp_type: kind, srq, ..net.init_attr(cq[1]) };
        let qp = [net.qp_of(kind, cq[0]), net.qp_with(shared)];
        let mut buf = [vec![7; 1 << 12], vec![0; 1 << 12]];
        let mr = [net.mr(&mut buf[0], RW), net.mr(&mut buf[1], RW)];
        let p = QpPair { net, cq, qp, mr, buf };
        p.net.connect(p.qp[0], p.num(1), ConnectConfig::default());
        p.net.connect(p.qp[1], p.num(0), ConnectConfig::default());
        DomainEnds { p, other, srq }
    }

    /// Sends a list of messages.
    fn send(&self, messages: usize) {
        let ah = self.p.net.ah();
        let mut sges = [sge(self.p.mr[0], 0, LEN as u32)];
        let one = datagram_wr(2, &mut sges, SIGNALED, (ah, self.p.num(1), QKEY));
        assert_eq!(post_list(self.p.qp[0], &mut vec![one; messages]), 0);
        let sent = self.p.net.poll(self.p.cq[0], messages);
        assert!(sent.iter().all(|wc| wc.status == "SUCCESS"), "{sent:?}");
        self.p.net.destroy_ah(ah);
    }

    fn close(self) {
        let DomainEnds { p, other, srq } = self;
        let v = p.net.v;
        for end in [0, 1] {
            p.net.destroy_qp(p.qp[end]);
            p.net.destroy_cq(p.cq[end]);
            p.net.dereg(p.mr[end]);
        }
        // SAFETY: nothing uses them any more.
        unsafe {
            assert_eq!((v.destroy_srq)(srq), 0);
            assert_eq!((v.dealloc_pd)(other), 0);
        }
        p.net.close();
    }
}

/// Receives of one piece and of two, in plain and in on-demand memory, for single messages and lists.
#[test]
fn a_receive_lies_in_the_domain_of_its_queue() {
    if !is_softs_own("shared receive queues of other domains") {
        return;
    }
    for kind in [ibv_qp_type::IBV_QPT_RC, ibv_qp_type::IBV_QPT_UC, ibv_qp_type::IBV_QPT_UD] {
        for (access, pieces, messages) in
            [(RW, 1, 1), (RW, 1, 8), (RW, 2, 3), (RW | ON_DEMAND, 1, 2), (RW | ON_DEMAND, 2, 2)]
        {
            let ends = DomainEnds::new(kind);
            let mut bytes = vec![0; messages * ROOM];
            let mr = ends.p.net.mr_in(ends.other, &mut bytes, access);
            for i in 0..messages {
                let each = (ROOM / pieces) as u32;
                let piece = |n| sge(mr, i * ROOM + n * each as usize, each);
                let mut sges: Vec<_> = (0..pieces).map(piece).collect();
                assert_eq!(post_srq_recv(ends.srq, i as u64, &mut sges), 0);
            }
            ends.send(messages);
            let case = (kind, access, pieces, messages);
            let taken = ends.p.net.poll(ends.p.cq[1], messages);
            assert!(taken.iter().all(|wc| wc.status == "SUCCESS"), "{case:?}: {taken:?}");
            let at = if kind == ibv_qp_type::IBV_QPT_UD { GRH } else { 0 };
            for i in 0..messages {
                let begins = i * ROOM + at;
                assert_eq!(bytes[begins..begins + LEN], [7; LEN], "{case:?}");
            }
            ends.p.net.dereg(mr);
            ends.close();
        }
    }
}

#[test]
fn memory_of_the_queue_pairs_domain_is_no_receive_of_the_queue() {
    if !is_softs_own("shared receive queues of other domains") {
        return;
    }
    let ends = DomainEnds::new(ibv_qp_type::IBV_QPT_RC);
    assert_eq!(post_srq_recv(ends.srq, 1, &mut [sge(ends.p.mr[1], 0, ROOM as u32)]), 0);
    let mut sges = [sge(ends.p.mr[0], 0, LEN as u32)];
    let mut wr = send_wr(2, ibv_wr_opcode::IBV_WR_SEND, &mut sges, SIGNALED);
    assert_eq!(post_send(ends.p.qp[0], &mut wr), 0);
    assert_eq!(ends.p.net.poll(ends.p.cq[0], 1)[0].status, "REM_OP");
    assert_eq!(ends.p.net.poll(ends.p.cq[1], 1)[0].status, "LOC_PROT");
    ends.close();
}
