//! The library that was built, and the one that it stands in for.
#![allow(dead_code, unreachable_pub, reason = "each test binary uses a part of it")]

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// The library of this build. Cargo builds no cdylib for a test, so that this does.
pub fn library() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| {
        // TARGET/PROFILE/deps/TEST
        let program = std::env::current_exe().unwrap();
        let folder = program.parent().and_then(Path::parent).unwrap();
        let profile = match folder.file_name().and_then(|name| name.to_str()) {
            Some("debug") | None => "dev",
            Some(name) => name,
        };
        // With this test of the whole workspace, as it was built: the crates that the library is made
        // of have the same features, and are not built again.
        let test = env!("CARGO_CRATE_NAME");
        let status = Command::new(env!("CARGO"))
            .args([
                "build",
                "--quiet",
                "--workspace",
                "--lib",
                "--test",
                test,
                "--profile",
                profile,
            ])
            .arg("--target-dir")
            .arg(folder.parent().unwrap())
            .current_dir(env!("CARGO_MANIFEST_DIR"))
            .status();
        assert!(status.unwrap().success(), "the library does not build");
        folder.join("librdma_conn_soft.so")
    })
}

/// rdma-core's library, where it is installed.
pub fn installed() -> Option<PathBuf> {
    let folders = ["/usr/lib/x86_64-linux-gnu", "/usr/lib64", "/usr/lib"];
    let found =
        folders.iter().map(|f| Path::new(f).join("libibverbs.so.1")).find(|path| path.exists());
    let is_wanted = std::env::var_os("SOFT_RNIC_SKIPS_NOTHING").is_some();
    assert!(found.is_some() || !is_wanted, "no libibverbs.so.1: install Debian's libibverbs1");
    found
}
