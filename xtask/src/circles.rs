//! Looks for circles of modules: where a module uses an item of another one that, by some way,
//! uses an item of the first.
//!
//! A module uses another one when code outside tests names one of its items, by `use` or by path.
//! A name that is passed on (`pub use`) counts where it is defined, and that a module passes on
//! what its own children define does not count at all.

mod graph;
mod scan;

use std::path::Path;

use anyhow::{Context, Result, bail};

use graph::circles;
use scan::Krate;

/// Crates, and the file that each starts with.
const CRATES: &[(&str, &str)] = &[
    ("rdma-conn", "src/lib.rs"),
    ("rdma-conn-apps", "apps/src/main.rs"),
    ("rdma-conn-base", "tools/base/src/lib.rs"),
    ("rdma-conn-copy", "tools/copy/src/lib.rs"),
    ("rdma-conn-figures", "tools/figures/src/lib.rs"),
    ("rdma-conn-soft-tools", "tools/soft/src/lib.rs"),
    ("conn-core", "conn-core/src/lib.rs"),
    ("roce-core", "roce-core/src/lib.rs"),
    ("verbs-sys", "verbs-sys/src/lib.rs"),
    ("verbs-safe", "verbs-safe/src/lib.rs"),
    ("soft-rnic", "soft-rnic/src/lib.rs"),
    ("soft-rnic-abi", "soft-rnic/abi/src/lib.rs"),
    ("rdma-conn-host", "host/src/lib.rs"),
    ("worlds", "worlds/src/lib.rs"),
    ("loom-tests", "loom-tests/src/lib.rs"),
    ("verbs-safe-misuse", "verbs-safe/misuse/src/lib.rs"),
    ("xtask", "xtask/src/main.rs"),
];

/// Fails where modules of a crate use each other, and shows them.
pub(crate) fn run() -> Result<()> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().context("xtask lies in a folder")?;
    let mut wrong = Vec::new();
    for (name, file) in CRATES {
        let krate = Krate::read(&root.join(file))?;
        let edges = krate.edges();
        let circles = circles(krate.len(), &edges);
        println!("{name}: {} modules, {} circles", krate.len(), circles.len());
        for circle in &circles {
            println!("  {} modules use each other:", circle.len());
            let inside = |(a, b): &(usize, usize)| circle.contains(a) && circle.contains(b);
            for ((from, to), path) in edges.iter().filter(|(edge, _)| inside(edge)) {
                println!("    {} -> {} ({path})", krate.name(*from), krate.name(*to));
            }
        }
        if !circles.is_empty() {
            wrong.push(*name);
        }
    }
    if !wrong.is_empty() {
        bail!(
            "circles of modules in {}: what two modules share is a module below both",
            wrong.join(", ")
        );
    }
    Ok(())
}
