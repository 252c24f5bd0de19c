// A posted slot is the device's.
use verbs_safe::SendQueue;

fn write_after_post(send: &mut SendQueue) {
    let slot = send.next_slot().unwrap();
    let _ = send.post();
    slot[0] = 1;
}

fn main() {}
