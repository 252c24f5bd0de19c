//! The C runtime calls `main`; nothing else of libc is used.

fn main() {
    println!("cargo::rustc-link-arg-bins=-nodefaultlibs");
    println!("cargo::rustc-link-arg-bins=-lc");
}
