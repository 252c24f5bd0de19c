// Staging uses what adding changes.
use verbs_safe::{AddressHandle, SendQueue};

fn add(send: &SendQueue, at: &AddressHandle) {
    let _ = send.add_peer(at, 1, 2);
}

fn main() {}
