// One free for one piece.
use verbs_safe::RingBytes;

fn twice(bytes: &RingBytes) -> RingBytes {
    RingBytes::clone(bytes)
}

fn main() {}
