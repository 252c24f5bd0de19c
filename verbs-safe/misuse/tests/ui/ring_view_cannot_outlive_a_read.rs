// What is seen of a ring is not seen any more when it is read into.
use verbs_safe::{LandingRing, RemoteSpan, SendFlags, SendQueue};

fn keep(ring: &mut LandingRing, queue: &mut SendQueue, from: RemoteSpan) {
    let seen = ring.view(0, 8);
    ring.pass(8);
    let _ = ring.stage_read(queue, 8, from, SendFlags::default());
    let _ = seen.map(|bytes| bytes[0]);
}

fn main() {}
