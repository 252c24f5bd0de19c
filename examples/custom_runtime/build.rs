//! The C runtime calls `main`; of libc, `src/output.rs` uses two functions.

fn main() {
    println!("cargo::rustc-link-arg-bins=-nodefaultlibs");
    println!("cargo::rustc-link-arg-bins=-lc");
}
