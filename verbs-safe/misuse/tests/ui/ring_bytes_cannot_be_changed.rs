// What has landed is lent to be read.
use verbs_safe::RingBytes;

fn change(bytes: &mut RingBytes) {
    bytes[0] = 1;
}

fn main() {}
