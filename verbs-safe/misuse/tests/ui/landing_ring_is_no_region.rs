// A ring's memory is not named to requests of other kinds.
use verbs_safe::{LandingRing, SendQueue};

fn attach(ring: &LandingRing, queue: &mut SendQueue) {
    let _ = queue.attach(ring);
}

fn main() {}
