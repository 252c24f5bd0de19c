#!/usr/bin/env bash
# Runs every way in which a connection can end under valgrind: no memory is lost.
# Blocks that threads hold which run as long as the program (the timer of soft0) are
# reachable, not lost.
set -euo pipefail
cd "$(dirname "$0")/.."

if ! command -v valgrind >/dev/null; then
    echo "leaks: needs valgrind (on Debian: apt-get install valgrind)" >&2
    exit 1
fi

# The path of the test program, from cargo's own message about it: the one that the README's command builds.
program=$(cargo test --workspace --no-run --message-format=json 2>/dev/null |
    sed -n 's/.*"executable":"\([^"]*leaks-[^"]*\)".*/\1/p' | tail -1)
if [ -z "$program" ]; then
    cargo test --workspace --test leaks --no-run # says why
    exit 1
fi

# Spinning threads have to let the others run (fair-sched). Where valgrind cannot
# run the program at all, this fails, too.
valgrind --quiet --fair-sched=yes --leak-check=full --show-leak-kinds=definite,indirect \
    --errors-for-leak-kinds=definite,indirect --error-exitcode=9 \
    "$program" --test-threads=1
echo "leaks: nothing lost"
