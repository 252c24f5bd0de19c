//! Names the library for the dynamic linker, and gives the nodes that its symbols are versioned by.
#![cfg_attr(not(test), deny(clippy::disallowed_methods, clippy::disallowed_types))]

fn main() {
    let folder = std::env::var("CARGO_MANIFEST_DIR").unwrap_or_default();
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-changed=libibverbs.map");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libibverbs.so.1");
    // Beside rustc's own script, which names no version: lld takes both, GNU ld refuses.
    println!("cargo:rustc-cdylib-link-arg=-Wl,--version-script={folder}/libibverbs.map");
}
