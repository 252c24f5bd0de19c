// A staged slot is the device's.
use verbs_safe::{PeerId, SendOp, SendQueue};

fn write_after_stage(send: &mut SendQueue, peer: PeerId) {
    let slot = send.next_slot().unwrap();
    let _ = send.stage_to(peer, SendOp::Send { len: 1 }, true);
    slot[0] = 1;
}

fn main() {}
