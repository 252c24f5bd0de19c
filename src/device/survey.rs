//! Survey of the devices on this machine, and of obstacles to the use of others.

use std::path::Path;

use verbs_safe::{DeviceAttr, GidEntry, PortAttr};

use super::{Device, Provider, providers};

/// The result of [`survey()`].
#[derive(Debug)]
#[non_exhaustive]
pub struct Survey {
    /// The devices, cards first.
    pub devices: Vec<Found>,
    /// Obstacles that keep cards from being used, or from being used well.
    pub obstacles: Vec<Obstacle>,
}

/// One device.
#[derive(Debug)]
#[non_exhaustive]
pub struct Found {
    /// Its name.
    pub name: String,
    /// Its provider.
    pub provider: Provider,
    /// Its node GUID.
    pub guid: u64,
    /// Its limits, or why they are not known.
    pub attr: Result<DeviceAttr, String>,
    /// Its ports.
    pub ports: Vec<PortReport>,
}

/// One port and its GIDs.
#[derive(Debug)]
#[non_exhaustive]
pub struct PortReport {
    /// The port.
    pub attr: PortAttr,
    /// Its GID table, without empty entries.
    pub gids: Vec<GidEntry>,
    /// The index that connections use by default.
    pub chosen_gid: Option<u32>,
}

/// An obstacle to the use of a device, and its remedy.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Obstacle {
    /// Description of the obstacle.
    pub what: String,
    /// Steps that remove the obstacle.
    pub remedy: String,
}

/// Surveys all devices. Never fails: it reports failures as obstacles.
///
/// ```
/// let survey = rdma_conn::device::survey();
/// assert!(survey.devices.iter().any(|d| d.name == "soft0"));
/// ```
#[must_use]
pub fn survey() -> Survey {
    let mut obstacles = Vec::new();
    if let Err(e) = verbs_sys::load() {
        obstacles
            .push(obstacle(e.to_string(), "nothing, to use soft0; the packages named, for cards"));
    }
    let mut devices = Vec::new();
    for (provider, table) in providers() {
        match verbs_safe::devices(table) {
            Ok(found) => devices.extend(found.iter().map(|d| look_at(d, provider))),
            Err(e) => obstacles.push(obstacle(e.to_string(), "see the kernel's log")),
        }
    }
    obstacles.extend(soft_obstacle());
    obstacles.extend(kernel_obstacles(&devices));
    obstacles.extend(memlock_obstacle());
    for device in &devices {
        obstacles.extend(device_obstacle(device));
    }
    Survey { devices, obstacles }
}

fn obstacle(what: impl Into<String>, remedy: impl Into<String>) -> Obstacle {
    Obstacle { what: what.into(), remedy: remedy.into() }
}

fn look_at(found: &verbs_safe::Device, provider: Provider) -> Found {
    let opened = Device::open(found, provider).map_err(|e| e.to_string());
    let attr = opened.as_ref().map_err(Clone::clone);
    let attr = attr.and_then(|d| d.context().attr().map_err(|e| e.to_string()));
    let ports = match (&opened, &attr) {
        (Ok(device), Ok(attr)) => (1..=attr.ports).filter_map(|p| port(device, p)).collect(),
        _ => Vec::new(),
    };
    Found { name: found.name().to_owned(), provider, guid: found.guid(), attr, ports }
}

fn port(device: &Device, number: u8) -> Option<PortReport> {
    let attr = device.context().port(number).ok()?;
    let gids = device.context().gid_table(number).unwrap_or_default();
    let chosen_gid = device.context().choose_gid(number, None).ok().map(|gid| gid.index);
    Some(PortReport { attr, gids, chosen_gid })
}

/// Returns the obstacle that keeps soft0 within its process, if there is one.
fn soft_obstacle() -> Option<Obstacle> {
    let why = soft_rnic::crosses_processes().err()?;
    Some(obstacle(
        format!("soft0 does not reach other processes: {why}"),
        "let this process have memory files (memfd_create; of 64 MiB, see ulimit -f), abstract \
         sockets, and /proc; in a user namespace, as a user that is not 65534",
    ))
}

/// The parts of the kernel that are missing.
fn kernel_obstacles(devices: &[Found]) -> Option<Obstacle> {
    if devices.iter().any(|d| d.provider == Provider::RdmaCore) {
        return None;
    }
    if !Path::new("/sys/class/infiniband").exists() {
        return Some(obstacle(
            "the kernel has no RDMA devices (/sys/class/infiniband is missing)",
            "load the card's driver (mlx5_ib, irdma, bnxt_re, …), or rdma_rxe for soft-RoCE",
        ));
    }
    if !Path::new("/dev/infiniband").exists() {
        return Some(obstacle(
            "/dev/infiniband is missing: programs have no way to the kernel's RDMA devices",
            "load ib_uverbs; in a container, pass /dev/infiniband in",
        ));
    }
    Some(obstacle(
        "the kernel shows no usable RDMA device",
        "check `rdma link`, and that this user may open /dev/infiniband/uverbs*",
    ))
}

/// Cards pin the memory that is registered with them.
fn memlock_obstacle() -> Option<Obstacle> {
    const ENOUGH: u64 = 64 << 20;
    let limit = rustix::process::getrlimit(rustix::process::Resource::Memlock).current?;
    (limit < ENOUGH).then(|| {
        obstacle(
            format!(
                "at most {} KiB of memory may be locked, and cards lock what they use",
                limit >> 10
            ),
            "ulimit -l unlimited, or memlock in /etc/security/limits.conf (soft0 locks nothing)",
        )
    })
}

fn device_obstacle(device: &Found) -> Option<Obstacle> {
    if let Err(e) = &device.attr {
        return Some(obstacle(e.clone(), "check the permissions of /dev/infiniband/uverbs*"));
    }
    if device.ports.iter().any(|p| p.attr.is_active) {
        return None;
    }
    let states: Vec<_> = device.ports.iter().map(|p| p.attr.state).collect();
    Some(obstacle(
        format!("{} has no active port ({})", device.name, states.join(", ")),
        "check the cable, the switch, and the subnet manager (InfiniBand) or the link (Ethernet)",
    ))
}
