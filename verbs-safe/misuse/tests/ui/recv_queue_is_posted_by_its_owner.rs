// Posting needs the queue for oneself.
fn post(recv: &verbs_safe::RecvQueue<()>) {
    let _ = recv.post(&[0]);
}

fn main() {}
