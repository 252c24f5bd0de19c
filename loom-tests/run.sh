#!/bin/sh
# Runs all loom models, then each mutant of mutants.txt, whose model must fail.
# By hand, one model: RUSTFLAGS='--cfg rdma_conn_loom' \
#     cargo test -p loom-tests --release --target-dir target/loom --test combiner
# and one mutant of it: the same with RDMA_CONN_MUTANT=combiner-enter-take
set -eu
cd "$(dirname "$0")/.."
target=${CARGO_TARGET_DIR:-$PWD/target}/loom
export RUSTFLAGS='--cfg rdma_conn_loom'
# The models run for seconds: quick to build matters more than the last bit of speed.
export CARGO_PROFILE_RELEASE_LTO=off CARGO_PROFILE_RELEASE_DEBUG=false
loom_test() { cargo test --quiet -p loom-tests --release --target-dir "$target" "$@"; }

loom_test --tests

output=$target/output
count=0
while read -r mutant model; do
    case $mutant in '' | '#'*) continue ;; esac
    export RDMA_CONN_MUTANT="$mutant"
    if loom_test --test "$model" </dev/null >"$output" 2>&1; then
        echo "loom: the model '$model' does not notice the mutant '$mutant'" >&2
        exit 1
    fi
    # Where all threads sleep, loom ends the process.
    if ! grep -qE 'test result: FAILED|^deadlock; threads' "$output"; then
        cat "$output" >&2
        echo "loom: the model '$model' did not run with the mutant '$mutant'" >&2
        exit 1
    fi
    echo "loom: mutant $mutant caught by $model"
    count=$((count + 1))
done <loom-tests/mutants.txt
echo "loom: all models hold, $count of $count mutants caught"
