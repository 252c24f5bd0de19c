// Only polling makes completions.
fn forge(wc: &verbs_sys::ibv_wc) -> verbs_safe::Completion<'_> {
    verbs_safe::Completion { wc, epoch: 0 }
}

fn main() {}
