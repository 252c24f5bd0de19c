// A peer may write to it at any time.
fn slice(region: &verbs_safe::SharedRegion) -> &[u8] {
    &region[..]
}

fn main() {}
