// A peer may write to it at any time.
fn bytes(region: &verbs_safe::SharedRegion) -> &[u8] {
    region.as_ref()
}

fn main() {}
