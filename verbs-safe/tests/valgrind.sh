#!/bin/sh
# Runs the tests that drop and forget things under valgrind: nothing that was freed is
# touched. rustix goes through libc for it, since what it does without libc (reading the
# auxiliary vector) is beyond valgrind. What these tests forget on purpose is leaked.
set -eu
export RUSTFLAGS="--cfg=rustix_use_libc" UNDER_VALGRIND=1
export CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-target}/valgrind"
export CARGO_TARGET_X86_64_UNKNOWN_LINUX_GNU_RUNNER="valgrind --quiet --fair-sched=yes --error-exitcode=9"
exec cargo test --package verbs-safe --lib --test lifetimes --test send_recv --test one_sided --test srq \
    --test queues --test faults --test unreliable --test datagrams -- --test-threads=1
