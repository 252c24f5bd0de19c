// Posting needs the queue for oneself.
fn post(send: &verbs_safe::SendQueue) {
    let _ = send.post();
}

fn main() {}
