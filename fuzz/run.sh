#!/bin/sh
# Runs every fuzz target (or those named) for SECONDS_EACH seconds (10).
# Needs: rustup toolchain install nightly; cargo install cargo-fuzz
set -eu
cd "$(dirname "$0")"
seconds=${SECONDS_EACH:-10}
unset RUSTFLAGS
cargo +nightly fuzz build
targets=${*:-$(cargo +nightly fuzz list)}
for target in $targets; do
    mkdir -p "corpus/$target"
    set -- "corpus/$target"
    [ ! -d "seeds/$target" ] || set -- "$@" "seeds/$target"
    if ! cargo +nightly fuzz run "$target" "$@" -- \
        -max_total_time="$seconds" -max_len=2200 -verbosity=0 -print_final_stats=1 \
        >"corpus/$target.log" 2>&1; then
        cat "corpus/$target.log" >&2
        exit 1
    fi
    echo "fuzz: $target, $(sed -n 's/stat::number_of_executed_units: *//p' "corpus/$target.log") runs clean"
done
