// A completion is the right to a slot: two of them would be two rights.
fn twice(completion: verbs_safe::Completion<'_>) {
    let copy = completion.clone();
    let _ = (completion, copy);
}

fn main() {}
