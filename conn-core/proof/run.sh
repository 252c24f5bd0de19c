#!/bin/sh
# Shows that conn-core and roce-core need neither std nor an allocator: builds a program that
# has none and drives every machine, runs it, and searches it for an allocator. Then the same as
# for a target without 64-bit atomics, with what is left there, and the same for the example of
# a runtime of its own.
set -eu
cd "$(dirname "$0")"
target=${CARGO_TARGET_DIR:-$PWD/../../target}/proof
program=$target/release/conn-core-proof

build() { cargo build --quiet --release --target-dir "$target" "$@"; }

has_no_allocator() { # program
    if nm "$1" | grep -E '__rust_alloc|__rg_alloc|__rust_dealloc|alloc5alloc|3std'; then
        echo "proof: $1 contains an allocator or std" >&2
        exit 1
    fi
}

drives() { # cfg, or nothing
    RUSTFLAGS=${1:+--cfg $1} build
    timeout 10 "$program" || { echo "proof: step $? failed (124: a panic) $1" >&2; exit 1; }
    has_no_allocator "$program"
}

drives ''
drives rdma_conn_no_atomic64
# All tests compile without 64-bit atomics. Those of the repost queue run: its words are narrower.
RUSTC_WORKSPACE_WRAPPER=$PWD/rustc-no-atomic64.sh cargo test --quiet --manifest-path ../Cargo.toml \
    --lib repost
# As its readers run it.
example=$PWD/../../examples/custom_runtime/Cargo.toml
cargo fmt --manifest-path "$example" --check
cargo clippy --quiet --manifest-path "$example" --target-dir "$target" -- -D warnings
cargo run --quiet --manifest-path "$example" --target-dir "$target"
has_no_allocator "$target/debug/custom_runtime"
# The program of the proof must fail when a step comes out otherwise than expected.
RUSTFLAGS='--cfg proof_of_failure' build
if timeout 10 "$program"; then
    echo "proof: the program does not notice a failed step" >&2
    exit 1
fi
echo "proof: every machine and the codec of RoCE v2 driven without std and alloc, those that need no 64-bit atomics without these; $(cargo tree --quiet --prefix none --edges normal | wc -l) crates:"
cargo tree --edges normal
