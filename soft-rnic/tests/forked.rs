//! A child of fork has a device of its own, and cannot use what its parent has made.
//!
//! Not on distant: such a device is one process's, and numbers are of that.
//! Not on rxe0: a kernel's object belongs to a descriptor, which the child has as well.

mod common;

use std::panic::{AssertUnwindSafe, catch_unwind};

use common::*;
use libc::{EINVAL, EPERM};
use rustix::pipe::pipe;
use verbs_sys::*;

const RC: ibv_qp_type = ibv_qp_type::IBV_QPT_RC;
const LEN: u32 = 100;

/// The child's findings: the number of its queue pair, then the errors of its uses of its parent's objects.
type ChildFindings = [u32; 6];
const REFUSED: [u32; 5] = [EPERM as u32, EINVAL as u32, EINVAL as u32, EPERM as u32, EPERM as u32];

fn number(error: i32) -> u32 {
    error.unsigned_abs()
}

/// The parent's objects, used by its child.
fn use_inherited(net: &Net, qp: *mut ibv_qp) -> [u32; 5] {
    let mut wr = send_wr(1, ibv_wr_opcode::IBV_WR_SEND, &mut [], SIGNALED);
    let posted = [number(post_send(qp, &mut wr)), number(post_recv(qp, 1, &mut []))];
    let ((attr, mask), ..) = net.steps(0, ConnectConfig::default());
    // SAFETY: the context is open.
    unsafe {
        assert!((net.v.alloc_pd)(net.ctx).is_null());
        let made = number(errno());
        let modified = number(net.modify(qp, attr, mask));
        let mut event: ibv_async_event = core::mem::zeroed();
        assert_eq!((net.v.get_async_event)(net.ctx, &mut event), -1);
        [made, posted[0], posted[1], modified, number(errno())]
    }
}

/// A queue pair with its completion queue, and a region.
struct ForkedEnd {
    cq: *mut ibv_cq,
    qp: *mut ibv_qp,
    mr: *mut ibv_mr,
    bytes: Vec<u8>,
}

impl ForkedEnd {
    fn new(net: &Net, byte: u8) -> ForkedEnd {
        let (cq, mut bytes) = (net.cq(16), vec![byte; LEN as usize]);
        ForkedEnd { cq, qp: net.qp_of(RC, cq), mr: net.mr(&mut bytes, RW), bytes }
    }

    fn close(self, net: &Net) {
        net.destroy_qp(self.qp);
        net.destroy_cq(self.cq);
        net.dereg(self.mr);
    }
}

fn write_all(to: &impl std::os::fd::AsFd, found: ChildFindings) {
    let bytes: Vec<u8> = found.iter().flat_map(|n| n.to_ne_bytes()).collect();
    assert_eq!(rustix::io::write(to, &bytes), Ok(bytes.len()));
}

fn read_all(from: &impl std::os::fd::AsFd) -> ChildFindings {
    let mut bytes = [0; size_of::<ChildFindings>()];
    assert_eq!(rustix::io::read(from, &mut bytes), Ok(bytes.len()), "the child has failed");
    let word = |i: usize| u32::from_ne_bytes(bytes[4 * i..4 * i + 4].try_into().unwrap());
    core::array::from_fn(word)
}

/// The child sends a message to its parent, between two devices.
#[test]
fn a_child_of_fork_has_a_device_of_its_own() {
    if !is_softs_own("what a child of fork finds") {
        return;
    }
    let net = Net::new();
    let first = ForkedEnd::new(&net, 0);
    net.connect(first.qp, qp_num(first.qp), ConnectConfig::default());
    let ((to_child, in_child), (to_parent, in_parent)) = (pipe().unwrap(), pipe().unwrap());
    // SAFETY: the child does not return from here.
    let child = unsafe { libc::fork() };
    if child == 0 {
        // SAFETY: a child that waits for ever ends, too.
        unsafe { libc::alarm(60) };
        let done = catch_unwind(AssertUnwindSafe(|| {
            let refused = use_inherited(&net, first.qp);
            let own = Net::new();
            let end = ForkedEnd::new(&own, 7);
            let mine = qp_num(end.qp);
            let all = [mine, refused[0], refused[1], refused[2], refused[3], refused[4]];
            write_all(&in_parent, all);
            let theirs = read_all(&to_child)[0];
            own.connect(end.qp, theirs, ConnectConfig::PATIENT);
            let mut sges = [sge(end.mr, 0, LEN)];
            let mut wr = send_wr(1, ibv_wr_opcode::IBV_WR_SEND, &mut sges, SIGNALED);
            assert_eq!(post_send(end.qp, &mut wr), 0);
            assert_eq!(own.poll(end.cq, 1)[0].status, "SUCCESS");
            write_all(&in_parent, all);
            end.close(&own);
            own.close();
        }));
        // SAFETY: it ends here.
        unsafe { libc::_exit(i32::from(done.is_err())) };
    }
    drop((to_child, in_parent));
    let found = read_all(&to_parent);
    let second = ForkedEnd::new(&net, 0);
    let mine = qp_num(second.qp);
    assert_eq!(found[1..], REFUSED);
    assert!(![mine, qp_num(first.qp)].contains(&found[0]), "{found:x?}");
    let mut room = [sge(second.mr, 0, LEN)];
    let ((attr, mask), ..) = net.steps(0, ConnectConfig::default());
    assert_eq!(net.modify(second.qp, attr, mask), 0);
    assert_eq!(post_recv(second.qp, 2, &mut room), 0);
    net.connect(second.qp, found[0], ConnectConfig::PATIENT);
    write_all(&in_child, [mine, 0, 0, 0, 0, 0]);
    let came = net.poll(second.cq, 1)[0];
    assert_eq!((came.status, came.len, came.qp), ("SUCCESS", LEN, mine));
    assert_eq!(second.bytes, [7; LEN as usize]);
    read_all(&to_parent);
    let mut status = 0;
    // SAFETY: a child of ours that was not waited for.
    assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
    assert_eq!(status, 0);
    // The parent's objects are what they were.
    assert_eq!(net.state(first.qp), ibv_qp_state::IBV_QPS_RTS);
    assert_eq!(post_recv(first.qp, 1, &mut [sge(first.mr, 0, 8)]), 0);
    let mut sges = [sge(first.mr, 8, 8)];
    let mut wr = send_wr(2, ibv_wr_opcode::IBV_WR_SEND, &mut sges, SIGNALED);
    assert_eq!(post_send(first.qp, &mut wr), 0);
    assert_eq!(net.poll(first.cq, 2).len(), 2);
    first.close(&net);
    second.close(&net);
    net.close();
}
