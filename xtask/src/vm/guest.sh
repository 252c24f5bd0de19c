#!/usr/bin/env bash
# Runs in the guest, as root: makes the device, then runs the command. Its host reads
# what became of it from files in the shared folder: `unready` (one line that says what
# is missing), `ready`, `status`.
shared=$1

unready() {
    echo "$1" >"$shared/unready"
    exit 1
}

# shellcheck disable=SC1091
source "$shared/environment"

# A guest whose host has gone shuts itself down.
(
    sleep "$RDMA_CONN_VM_LIFETIME"
    echo o >/proc/sysrq-trigger
) >/dev/null 2>&1 &

ip link set lo up
for module in rdma_rxe ib_uverbs rdma_ucm dummy; do
    modprobe "$module" || unready "the guest's kernel has no module $module: empty the cache of the virtual machine, so that a kernel that has it is fetched"
done
# The default MTU of 1500 leaves RoCE with 1024 bytes, and large messages with a crawl.
{ ip link add rdma0 type dummy && ip link set rdma0 mtu 4200 &&
    ip addr add 10.9.0.1/24 dev rdma0 && ip link set rdma0 up; } ||
    unready "the guest cannot make a network interface: iproute2 is needed"
rdma link add rxe0 type rxe netdev rdma0 ||
    unready "the guest cannot make the device rxe0: the command rdma of iproute2 is needed"
for ((i = 0; i < 100; i++)); do
    grep -qs ffff:0a09:0001 /sys/class/infiniband/rxe0/ports/1/gids/* && break
    sleep 0.1
done
[ -c /dev/infiniband/uverbs0 ] || unready "the guest has no /dev/infiniband/uverbs0"
ulimit -l unlimited

# The guest's own view of the host asks the host for every name and every page again;
# this one keeps what it has seen, and what is written to it stays here.
root=/run/root
mkdir -p /run/host /run/upper /run/work "$root"
{ mount -t 9p -o ro,trans=virtio,version=9p2000.L,msize=512000,cache=loose host /run/host &&
    mount -t overlay -o lowerdir=/run/host,upperdir=/run/upper,workdir=/run/work root "$root"; } ||
    unready "the guest cannot mount the host's files"
for folder in /proc /sys /dev /lib/modules "$shared"; do
    # A host that is a container, or whose kernel has no modules, has no place for the guest's.
    mkdir -p "$folder" "$root$folder"
    mount --rbind "$folder" "$root$folder" || unready "the guest cannot mount $folder"
done

touch "$shared/ready"
chroot "$root" bash -c 'cd "$RDMA_CONN_VM_DIRECTORY" && exec bash "$RDMA_CONN_VM_SHARED/command"'
echo $? >"$shared/status.part"
mv "$shared/status.part" "$shared/status"
sync
