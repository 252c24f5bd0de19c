#!/bin/sh
# Runs every fuzz target (or those named) for SECONDS_EACH seconds (10), one on each processor.
# Needs: rustup toolchain install nightly; cargo install cargo-fuzz
set -eu
cd "$(dirname "$0")"
seconds=${SECONDS_EACH:-10}
unset RUSTFLAGS

one() { # target
    target=$1
    mkdir -p "corpus/$target"
    set -- "corpus/$target"
    [ ! -d "seeds/$target" ] || set -- "$@" "seeds/$target"
    if ! cargo +nightly fuzz run "$target" "$@" -- \
        -max_total_time="$seconds" -max_len=2200 -verbosity=0 -print_final_stats=1 \
        >"corpus/$target.log" 2>&1; then
        cat "corpus/$target.log" >&2
        exit 255 # no other target is started
    fi
    echo "fuzz: $target, $(sed -n 's/stat::number_of_executed_units: *//p' "corpus/$target.log") runs clean"
}

if [ "${1:-}" = --one ]; then
    one "$2"
    exit
fi
cargo +nightly fuzz build
targets=${*:-$(cargo +nightly fuzz list)}
# shellcheck disable=SC2086
printf '%s\n' $targets | xargs -P "$(nproc)" -n 1 ./run.sh --one
