// There is one next slot.
use verbs_safe::SendQueue;

fn alias(send: &mut SendQueue) {
    let one = send.next_slot().unwrap();
    let two = send.next_slot().unwrap();
    one[0] = two[0];
}

fn main() {}
