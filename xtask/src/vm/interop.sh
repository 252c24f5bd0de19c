#!/usr/bin/env bash
# Runs in the guest: the kernel's soft-RoCE at one end of a pair of virtual Ethernet devices, and
# soft0 over UDP, in a network namespace of its own, at the other. Debian's programs are both ends.
set -euo pipefail
library=$1

modprobe veth
ip link add v0 type veth peer name v1
ip netns add other
ip link set v1 netns other
ip link set v0 mtu 9000 up
ip addr add 10.10.0.1/24 dev v0
ip -n other link set lo up
ip -n other link set v1 mtu 9000 up
ip -n other addr add 10.10.0.2/24 dev v1
rdma link add rxe1 type rxe netdev v0
for ((i = 0; i < 100; i++)); do
    grep -qs ffff:0a0a:0001 /sys/class/infiniband/rxe1/ports/1/gids/1 && break
    sleep 0.1
done

kernels() { timeout 120 "$@"; }
ours() { # options of the device, command …
    local options=$1
    shift
    timeout 120 ip netns exec other env "RDMA_CONN_ROCE=10.10.0.2$options" "LD_PRELOAD=$library" "$@"
}

failed=0
# Which end listens, options of our device, the program for the kernel's end and for ours.
pair() {
    local listens=$1 options=$2 theirs=$3 here=$4 port=$((20000 + RANDOM % 10000)) log
    log=$(mktemp)
    # shellcheck disable=SC2086 # words
    if [ "$listens" = kernel ]; then
        kernels $theirs -p $port >"$log" 2>&1 &
    else
        ours "$options" $here -p $port >"$log" 2>&1 &
    fi
    local server=$! status=0
    for ((i = 0; i < 300; i++)); do
        { ss -Hltn "sport = :$port" && ip netns exec other ss -Hltn "sport = :$port"; } | grep -q . && break
        sleep 0.1
    done
    # shellcheck disable=SC2086
    if [ "$listens" = kernel ]; then
        ours "$options" $here -p $port 10.10.0.1 >"$log.client" 2>&1 || status=$?
    else
        kernels $theirs -p $port 10.10.0.2 >"$log.client" 2>&1 || status=$?
    fi
    wait $server || status=$?
    local what="$listens listens: $here"
    [ -z "$options" ] || what+=" ($options)"
    if [ $status = 0 ]; then
        echo "rxe1 and roce, $what"
    else
        echo "rxe1 and roce, $what: status $status"
        cat "$log" "$log.client"
        failed=1
    fi
}

for listens in kernel ours; do
    for program in 'ibv_rc_pingpong -n 200 -m 4096' 'ibv_rc_pingpong -n 100 -s 65537 -m 1024' \
        'ibv_uc_pingpong -n 100 -s 1024' 'ibv_ud_pingpong -n 100 -s 1024'; do
        pair $listens '' "$program -d rxe1 -g 1" "$program -d roce:10.10.0.2 -g 0"
    done
    for program in 'ib_send_bw -F -n 100' 'ib_write_bw -F -n 100' 'ib_read_bw -F -n 100' 'ib_atomic_bw -F -n 50' \
        'ib_send_lat -F -n 100 -s 1000'; do
        pair $listens '' "$program -d rxe1 -x 1" "$program -d roce:10.10.0.2 -x 0"
    done
    program='ibv_rc_pingpong -n 50 -s 20000 -m 1024'
    pair $listens ',loss=0.02,duplication=0.02,seed=4' "$program -d rxe1 -g 1" "$program -d roce:10.10.0.2 -g 0"
done
exit $failed
