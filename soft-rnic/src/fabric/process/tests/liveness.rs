//! Memory of a process that has died: it stays mapped here until the death is noticed.

use super::blocking::{attached, post_writes};
use super::windows::{memory, whole};
use super::*;
use crate::peers::process::liveness::OWNER_DIED;

/// A peer that is this process, with a file that is mapped here, and a queue pair to it.
fn mapped(n: u32) -> (Wild, Arc<Qp>, OwnedFd) {
    let (peer, qp) = attached(n, 0);
    let file = memory(4_096);
    peer.directory.withdraw(1);
    peer.directory.publish(1, &PublishedRegion { access: 0xf, ..whole(&file) });
    (peer, qp, file)
}

fn first_byte(file: &OwnedFd) -> u8 {
    let mut byte = [0];
    rustix::io::pread(file, &mut byte, 0).unwrap();
    byte[0]
}

#[test]
fn writes_to_a_living_process_arrive() {
    let (peer, qp, file) = mapped(110);
    peer.directory.liveness.store(1, Ordering::Relaxed);
    post_writes(&qp);
    assert_eq!((statuses(&qp), first_byte(&file)), (vec![SUCCESS; 2], 7));
}

/// No thread here has noticed the death.
#[test]
fn writes_to_a_process_that_has_died_fail() {
    let (peer, qp, file) = mapped(111);
    peer.directory.liveness.store(OWNER_DIED, Ordering::Relaxed);
    post_writes(&qp);
    assert_eq!(statuses(&qp), []);
    assert_eq!((first(1, &qp), first_byte(&file)), (vec![RETRY_EXC], 0));
    assert!(!peer.pair.is_dead());
}

/// The device looks at the process itself where the kernel keeps no word.
#[test]
fn writes_to_a_dead_process_without_a_word_fail() {
    let mut process = Sleeper::new();
    let peer = Wild::at_slot(slot(112), process.pid());
    let qp = connected_to(ibv_qp_type::IBV_QPT_RC, far(slot(112)));
    peer.known();
    peer.receive_from(&qp);
    process.end();
    post_writes(&qp);
    assert_eq!(first(1, &qp), [RETRY_EXC]);
    assert!(!peer.pair.is_dead());
}
