// The slot that a READ landed in may be staged again.
use verbs_safe::{SendOp, SendQueue};

fn read_after_stage(send: &mut SendQueue) -> u8 {
    let landed = send.landed(1).unwrap();
    let _ = send.stage(SendOp::Send { len: 1 }, true);
    landed[0]
}

fn main() {}
