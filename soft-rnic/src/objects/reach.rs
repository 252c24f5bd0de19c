//! GIDs of devices that reach no other machine: those that reach each other have the same one, so that two ends learn
//! from their GIDs whether they can talk.

use std::net::Ipv4Addr;

use rustix::process::geteuid;

use crate::queues::address::GidBytes;

/// The GID of devices of the processes of this user, on this machine and in its network and PID namespaces.
pub(crate) fn gid_of_user() -> GidBytes {
    if host::is_in_world() {
        // What happens in a world follows from its seed alone.
        return gid_of(0);
    }
    let boot = std::fs::read("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let inode = |name| rustix::fs::stat(name).map_or(0, |stat| stat.st_ino);
    let namespaces = ["/proc/thread-self/ns/net", "/proc/self/ns/pid"].map(inode);
    gid_of_place(&boot, namespaces, geteuid().as_raw())
}

/// The GID of a user's devices, on the machine that was booted so, in namespaces with these inodes.
fn gid_of_place(boot: &[u8], namespaces: [u64; 2], user: u32) -> GidBytes {
    let mut of = crc32fast::Hasher::new();
    of.update(boot);
    namespaces.iter().for_each(|inode| of.update(&inode.to_le_bytes()));
    of.update(&user.to_le_bytes());
    gid_of(of.finalize())
}

/// The GID of a device that other processes do not reach, and no other device of this one.
pub(crate) fn gid_of_device() -> GidBytes {
    let [number] = host::random::lasting();
    gid_of(number as u32)
}

/// A loopback address, which no card has; of a quarter of them that few programs choose from, 127.64.0.0/10.
fn gid_of(number: u32) -> GidBytes {
    let [_, b, c, d] = number.to_be_bytes();
    Ipv4Addr::new(127, 64 | b & 63, c, d).to_ipv6_mapped().octets()
}

#[cfg(test)]
mod tests;
