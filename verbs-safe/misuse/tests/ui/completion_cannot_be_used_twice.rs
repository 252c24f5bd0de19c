// Taking a message uses the completion up.
use verbs_safe::{Completion, RecvQueue};

fn twice(recv: &mut RecvQueue<()>, completion: Completion<'_>) {
    let _ = recv.take(completion);
    let _ = recv.take(completion);
}

fn main() {}
