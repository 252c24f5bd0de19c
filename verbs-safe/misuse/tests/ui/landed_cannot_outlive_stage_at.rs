// Staging, from a region too, may lend the slot again.
use verbs_safe::{RegionId, RemoteSpan, SendFlags, SendOp, SendQueue};

fn read_after_stage(send: &mut SendQueue, region: RegionId, remote: RemoteSpan) -> u8 {
    let landed = send.landed(1).unwrap();
    let _ = send.stage_at(region, 0, SendOp::Read { len: 1, remote }, SendFlags::default());
    landed[0]
}

fn main() {}
