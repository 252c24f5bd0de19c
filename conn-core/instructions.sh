#!/bin/sh
# Counts the instructions that a message costs in conn-core, and fails when they are 60 or
# more at either end, or 80 or more for a record through a ring, at both (reserve, commit,
# take, free): those of 110,000 messages less those of 10,000, by valgrind's callgrind,
# which counts and does not time.
set -eu
cd "$(dirname "$0")/.."
limit=60
ring_limit=80
if ! command -v valgrind >/dev/null; then
    if [ "${RDMA_CONN_NO_VALGRIND:-}" = 1 ]; then
        echo "core instructions: not counted, since RDMA_CONN_NO_VALGRIND=1 and there is no valgrind"
        exit 0
    fi
    echo "core instructions: install valgrind to count them (Debian: apt install valgrind), or set RDMA_CONN_NO_VALGRIND=1 to go without" >&2
    exit 1
fi
target=${CARGO_TARGET_DIR:-$PWD/target}
cargo build --quiet --release -p conn-core --example instructions
log=$target/instructions.log

count() { # way, messages: instructions of the whole program
    if ! valgrind --tool=callgrind --callgrind-out-file=/dev/null \
        "$target/release/examples/instructions" "$1" "$2" >"$log" 2>&1; then
        cat "$log" >&2
        exit 1
    fi
    sed -n 's/.*Collected : //p' "$log"
}
per_message() { # way: instructions, in tenths
    few=$(count "$1" 10000)
    many=$(count "$1" 110000)
    echo $(((many - few) / 10000))
}
tenths() { echo "$(($1 / 10)).$(($1 % 10))"; }

send=$(per_message send)
receive=$(per_message receive)
ring=$(per_message ring)
echo "core instructions per message: send $(tenths "$send"), receive $(tenths "$receive") (limit $limit), through a ring $(tenths "$ring") (limit $ring_limit)"
[ "$send" -lt $((limit * 10)) ] && [ "$receive" -lt $((limit * 10)) ] &&
    [ "$ring" -lt $((ring_limit * 10)) ] || {
    echo "core instructions: over the limit" >&2
    exit 1
}
