// A buffer that several peers are offered is immutable.
use verbs_safe::FrozenBuffer;

fn change(buffer: &mut FrozenBuffer) {
    buffer[0] = 1;
}

fn main() {}
