#!/bin/sh
# Counts the instructions of a request of 16 and of 64 bytes on soft0, both ends in one thread,
# from its post to the repost of its receive request: those of 22,000 requests less those of
# 2,000, by valgrind's callgrind.
set -eu
cd "$(dirname "$0")/../.."
cargo build --release --quiet -p soft-rnic --example raw_loop
count() { # operation, list, bytes, requests
    valgrind --tool=callgrind --callgrind-out-file=/dev/null \
        "${CARGO_TARGET_DIR:-target}/release/examples/raw_loop" count "$@" 2>&1 |
        sed -n 's/.*Collected : //p'
}
for operation in send write; do
    for list in 8 1; do
        for bytes in 16 64; do
            few=$(count $operation $list $bytes 2000)
            many=$(count $operation $list $bytes 22000)
            echo "$operation, lists of $list, $bytes B: $(((many - few) / 20000))"
        done
    done
done
