//! Records what is being built, for `--version` and for every report: a figure
//! whose build is unknown cannot be compared with another.

use std::process::Command;

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-changed=.git/HEAD");
    println!("cargo:rerun-if-changed=.git/index");
    set("RDMA_CONN_COMMIT", &commit().unwrap_or_else(|| "unknown".into()));
    set("RDMA_CONN_PROFILE", &profile());
    set("RDMA_CONN_TARGET", &env("TARGET"));
    set("RDMA_CONN_TARGET_FEATURES", &env("CARGO_CFG_TARGET_FEATURE"));
}

fn set(name: &str, value: &str) {
    println!("cargo:rustc-env={name}={value}");
}

fn env(name: &str) -> String {
    std::env::var(name).unwrap_or_default()
}

/// The profile and what it does to the code: `release (opt-level 3)`.
fn profile() -> String {
    format!("{} (opt-level {})", env("PROFILE"), env("OPT_LEVEL"))
}

/// The short commit, with `-dirty` when the work tree differs from it. A
/// package from a registry has no repository: that is `None`, not an error.
fn commit() -> Option<String> {
    let git = |args: &[&str]| {
        let mut git = Command::new("git");
        // Git would write the index anew, which has cargo build everything again.
        git.args(args).current_dir(env("CARGO_MANIFEST_DIR")).env("GIT_OPTIONAL_LOCKS", "0");
        let out = git.output();
        out.ok()
            .filter(|o| o.status.success())
            .map(|o| String::from_utf8_lossy(&o.stdout).trim().to_owned())
    };
    let inside = git(&["rev-parse", "--show-prefix"])?;
    if !inside.is_empty() {
        return None; // unpacked inside somebody else's repository
    }
    let hash = git(&["rev-parse", "--short=12", "HEAD"])?;
    let dirty = !git(&["status", "--porcelain", "--untracked-files=no"])?.is_empty();
    Some(if dirty { format!("{hash}-dirty") } else { hash })
}
