//! Looks for circles of modules: where a module uses an item of another one that, by some way,
//! uses an item of the first; and for circles of folders.
//!
//! A module uses another one when code outside tests names one of its items, by `use` or by path.
//! A name that is passed on (`pub use`) counts where it is defined, and that a module passes on
//! what its own children define does not count at all.
//!
//! A folder is a module of the crate's root, with all that is in it. One uses another one when a
//! module in it does, so that folders can use each other where no modules do.

mod graph;
mod scan;

use anyhow::{Result, bail};

use graph::{Edges, circles, grouped};
use scan::Krate;

use crate::workspace;

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

/// Two folders of a crate, by their names.
type Pair = (&'static str, &'static str);

/// Pairs of folders that use each other, by the crate. The list only gets shorter.
const KNOWN: &[(&str, &[Pair])] = &[
    ("rdma-conn-apps", &[("cli", "measure"), ("measure", "settings")]),
    ("conn-core", &[("control", "loan")]),
];

/// Fails where modules of a crate use each other, or its folders do, and shows them.
pub(crate) fn run() -> Result<()> {
    let mut wrong = Vec::new();
    for (name, file) in CRATES {
        let krate = Krate::read(&workspace::root().join(file))?;
        let edges = krate.edges();
        let known = KNOWN.iter().find(|(of, _)| of == name);
        let known = known.map(|(_, known)| *known).unwrap_or_default();
        let (folder_edges, ended) = folders(&krate, &edges, known);
        let of_modules = circles(krate.len(), &edges);
        let of_folders = circles(krate.len(), &folder_edges);
        let (modules, folders) = (of_modules.len(), of_folders.len());
        println!("{name}: {} modules, {modules} circles, {folders} of folders", krate.len());
        show(&krate, &edges, &of_modules, "modules");
        show(&krate, &folder_edges, &of_folders, "folders");
        for (a, b) in &ended {
            println!("  {a} and {b} use each other no more: take them out of KNOWN");
        }
        if modules + folders + ended.len() > 0 {
            wrong.push(*name);
        }
    }
    if !wrong.is_empty() {
        bail!(
            "circles of modules or folders in {}: what two modules share is a module below both",
            wrong.join(", ")
        );
    }
    Ok(())
}

/// Uses of a crate's folders by each other, but for those of known pairs; and the known pairs that
/// are none any more.
fn folders(krate: &Krate, edges: &Edges, known: &[Pair]) -> (Edges, Vec<Pair>) {
    let mut folders = grouped(edges, |module| krate.folder(module));
    let mut ended = Vec::new();
    for (a, b) in known.iter().copied() {
        let [there, back] = [(a, b), (b, a)].map(|(from, to)| {
            let mut uses = folders.keys().copied();
            uses.find(|edge| krate.name(edge.0) == from && krate.name(edge.1) == to)
        });
        match there.zip(back) {
            Some((there, back)) => _ = (folders.remove(&there), folders.remove(&back)),
            None => ended.push((a, b)),
        }
    }
    (folders, ended)
}

fn show(krate: &Krate, edges: &Edges, circles: &[Vec<usize>], what: &str) {
    for circle in circles {
        println!("  {} {what} use each other:", circle.len());
        let inside = |(a, b): &(usize, usize)| circle.contains(a) && circle.contains(b);
        for ((from, to), path) in edges.iter().filter(|(edge, _)| inside(edge)) {
            println!("    {} -> {} ({path})", krate.name(*from), krate.name(*to));
        }
    }
}

#[cfg(test)]
mod tests;
