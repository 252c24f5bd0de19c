// What several peers are offered, nobody changes.
use verbs_safe::FrozenBuffer;

fn change(buffer: &mut FrozenBuffer) {
    buffer[0] = 1;
}

fn main() {}
