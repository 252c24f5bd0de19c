//! Peers to which much is owed: what a local call says to them meanwhile.

use core::sync::atomic::Ordering;

use super::super::progress::{LookScope, progress, settle};
use super::*;

/// Bytes of each READ: more than any look sends.
const READ: usize = 1 << 20;
/// Packets that a look sends, at an MTU of 1,024 bytes: see
/// [`Allowance`](crate::peers::wire::answers::Allowance).
const LOOK: u64 = 64 * (4_096 + 512) / (1_024 + 512);

/// Connections of one peer, and one of another, on a device without a thread; each is owed a READ.
struct Owing {
    rigs: Vec<Rig>,
}

impl Owing {
    fn new(device: &str, peers: [(&str, usize); 2]) -> Owing {
        let device = without_thread(device);
        let mut rigs = Vec::new();
        for (peer, connections) in peers {
            let peer = socket(peer.parse().unwrap());
            for _ in 0..connections {
                let qp = queue_pair_on(&device);
                connect(qp, peer.local_addr().unwrap().ip());
                // SAFETY: the queue pair is alive.
                let object = unsafe { Qp::from_abi(qp) }.unwrap().keep();
                let (device, peer) = (Arc::clone(&device), peer.try_clone().unwrap());
                let rig = Rig { device, object, peer };
                rig.take(&rig.read(READ));
                let from = rig.peer.local_addr().unwrap().ip();
                rig.device.wire().unwrap().rx.lock().answering.note(from, rig.object.num);
                rigs.push(rig);
            }
        }
        Owing { rigs }
    }

    fn device(&self) -> &Arc<Device> {
        &self.rigs[0].device
    }

    /// Packets that a call sends.
    fn sends(&self, call: impl FnOnce()) -> u64 {
        // Relaxed: a count of this thread's.
        let sent = || self.device().wire().unwrap().counts.sent.load(Ordering::Relaxed);
        let before = sent();
        call();
        sent() - before
    }

    fn look(&self) {
        let wire = self.device().wire().unwrap();
        progress(self.device(), wire, wire.rx.lock(), LookScope::Own);
    }
}

/// A reset of an unrelated queue pair sent all that was owed, and took as long.
#[test]
fn a_reset_says_nothing_for_others() {
    let owing = Owing::new("127.0.0.161", [("127.0.0.162", 16), ("127.0.0.163", 1)]);
    let own = queue_pair_on(owing.device());
    connect(own, owing.rigs[0].peer.local_addr().unwrap().ip());
    let mut attr = ibv_qp_attr { qp_state: ibv_qp_state::IBV_QPS_RESET, ..none() };
    let mask = ibv_qp_attr_mask::IBV_QP_STATE.0.cast_signed();
    // SAFETY: the queue pair is alive.
    let reset = || assert_eq!(unsafe { (crate::table().modify_qp)(own, &mut attr, mask) }, 0);
    assert_eq!(owing.sends(reset), 0);
    // SAFETY: it is not used any more.
    let destroy = || assert_eq!(unsafe { (crate::table().destroy_qp)(own) }, 0);
    assert_eq!(owing.sends(destroy), 0);
}

#[test]
fn a_look_says_as_much_for_many_as_for_one() {
    for (device, peer, other, owe) in [
        ("127.0.0.164", "127.0.0.165", "127.0.0.166", 1),
        ("127.0.0.167", "127.0.0.168", "127.0.0.169", 64),
    ] {
        let owing = Owing::new(device, [(peer, owe), (other, 0)]);
        assert_eq!(owing.sends(|| owing.look()), LOOK, "{owe} owe");
        assert_eq!(owing.sends(|| settle(&owing.rigs[0].object)), LOOK, "of its own");
    }
}

/// However many queue pairs a peer has.
#[test]
fn a_peer_has_its_share_of_each_look() {
    let owing = Owing::new("127.0.0.170", [("127.0.0.171", 16), ("127.0.0.172", 1)]);
    owing.look();
    let of_other = &owing.rigs.last().unwrap().peer;
    of_other.set_nonblocking(true).unwrap();
    let came = (0..).take_while(|_| of_other.recv(&mut [0; 2_048]).is_ok()).count() as u64;
    assert_eq!(came, LOOK / 2);
}
