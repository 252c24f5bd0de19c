// One thread posts to a send queue.
fn share<T: Sync>() {}

fn main() {
    share::<verbs_safe::SendQueue>();
}
