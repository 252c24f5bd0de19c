// The next poll writes over the batch.
use verbs_safe::{CompletionBatch, CompletionQueue};

fn stale(cq: &CompletionQueue, batch: &mut CompletionBatch) {
    let kept = batch.drain().next();
    let _ = cq.poll(batch);
    drop(kept);
}

fn main() {}
