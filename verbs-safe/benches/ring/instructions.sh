#!/bin/sh
# Counts the instructions of a message through conn-core's ring, and through the crates
# that one would take instead: those of 22,000 messages less those of 2,000, by valgrind's
# callgrind, which counts and does not time. The copy and what looks at the message are
# among them. Fails when conn-core's are not the fewest of all that take messages of any
# size, in runs of them and up to 512 bytes (beyond, it is the copy that is counted).
set -eu
cd "$(dirname "$0")/../../.."
if ! command -v valgrind >/dev/null; then
    if [ "${RDMA_CONN_NO_VALGRIND:-}" = 1 ]; then
        echo "ring instructions: not counted, since RDMA_CONN_NO_VALGRIND=1 and there is no valgrind"
        exit 0
    fi
    echo "ring instructions: install valgrind to count them (Debian: apt install valgrind), or set RDMA_CONN_NO_VALGRIND=1 to go without" >&2
    exit 1
fi
target=${CARGO_TARGET_DIR:-$PWD/target}
mkdir -p "$target"
log=$target/ring-instructions.log
bench=$(cargo bench -p verbs-safe --bench ring --no-run --message-format=json 2>"$log" |
    sed -n 's/.*"name":"ring".*"executable":"\([^"]*\)".*/\1/p')
[ -n "$bench" ] || { cat "$log" >&2; exit 1; }

count() { # way, ring, size, messages: instructions of the whole program
    if ! valgrind --tool=callgrind --callgrind-out-file=/dev/null \
        "$bench" count "$1" "$2" "$3" "$4" >"$log" 2>&1; then
        cat "$log" >&2
        exit 1
    fi
    sed -n 's/.*Collected : //p' "$log"
}
per_message() { # way, ring, size: instructions
    few=$(count "$1" "$2" "$3" 2000)
    many=$(count "$1" "$2" "$3" 22000)
    echo $(((many - few) / 20000))
}

failed=0
for way in one-by-one in-runs; do
    echo "ring instructions per message, $way:"
    printf '  %-22s %6s %6s %6s\n' '' '16 B' '512 B' '8 KiB'
    least_16='' least_512=''
    for ring in $("$bench" names); do
        n_16=$(per_message "$way" "$ring" 16)
        n_512=$(per_message "$way" "$ring" 512)
        printf '  %-22s %6d %6d %6d\n' "$ring" "$n_16" "$n_512" "$(per_message "$way" "$ring" 8192)"
        case $ring in
        conn-core) ours_16=$n_16 ours_512=$n_512 ;;
        conn-core-* | heapless-of-size) ;;
        *)
            [ -n "$least_16" ] && [ "$least_16" -le "$n_16" ] || least_16=$n_16
            [ -n "$least_512" ] && [ "$least_512" -le "$n_512" ] || least_512=$n_512
            ;;
        esac
    done
    if [ "$way" = in-runs ]; then
        [ "$ours_16" -lt "$least_16" ] && [ "$ours_512" -lt "$least_512" ] || failed=1
    fi
done
[ "$failed" = 0 ] || { echo "ring instructions: another ring takes fewer" >&2; exit 1; }
