// A region owns its memory until the registration has ended.
use verbs_safe::{Mapping, ProtectionDomain, SharedRegionConfig};

fn keep(pd: &ProtectionDomain, mapping: Mapping) -> usize {
    let _ = pd.register_shared(mapping, SharedRegionConfig::default());
    mapping.len()
}

fn main() {}
