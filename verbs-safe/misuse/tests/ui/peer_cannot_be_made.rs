// A peer is named by the queue that knows it.
fn main() {
    let _ = verbs_safe::PeerId((0, 1));
}
