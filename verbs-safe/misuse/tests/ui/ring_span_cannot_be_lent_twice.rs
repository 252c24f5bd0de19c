// A span of a ring is filled by one at a time.
use verbs_safe::SourceRing;

fn twice(ring: &mut SourceRing) {
    let one = ring.lend(0, 8).unwrap();
    let other = ring.lend(4, 8).unwrap();
    one[0] = other[0];
}

fn main() {}
