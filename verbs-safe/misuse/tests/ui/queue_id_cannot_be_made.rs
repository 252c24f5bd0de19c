// A queue's number comes from the queue.
fn main() {
    let _ = verbs_safe::QueueId(1);
}
