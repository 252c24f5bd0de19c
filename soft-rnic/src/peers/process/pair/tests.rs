use super::*;
use rustix::event::{EventfdFlags, eventfd};

#[test]
fn ringing_a_full_doorbell_that_blocks_does_not_wait() {
    let doorbell = eventfd(0, EventfdFlags::CLOEXEC).unwrap();
    rustix::io::write(&doorbell, &(u64::MAX - 1).to_ne_bytes()).unwrap();
    ring(&doorbell);
}
