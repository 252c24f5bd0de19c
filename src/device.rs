//! One list of devices: those of rdma-core, and the embedded `soft0`.
//!
//! [`open`] takes a device by name, or the first card with an active port, or
//! `soft0`; [`survey()`] tells what there is and what is missing.

use std::fmt;
use std::time::Duration;

use verbs_safe::{Context, PortAttr, ProtectionDomain};
use verbs_sys::Table;

mod counters;
mod survey;

pub use counters::{CounterError, Counters};
pub use soft_rnic::{NetworkFaults, set_network_faults};
pub use survey::{Found, Obstacle, PortReport, Survey, survey};

/// The name of the embedded device.
pub const SOFT: &str = "soft0";

/// The environment variable that names the device of tests and examples.
pub const DEVICE_VARIABLE: &str = "RDMA_CONN_DEVICE";

/// An open device and a protection domain on it. Clones are handles of the same.
#[derive(Clone)]
pub struct Device {
    context: Context,
    pd: ProtectionDomain,
    provider: Provider,
}

/// Who provides a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Provider {
    /// The embedded software device.
    Soft,
    /// rdma-core, as loaded at run time.
    RdmaCore,
}

impl fmt::Debug for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Device").field("name", &self.name()).finish_non_exhaustive()
    }
}

/// What a device refused, and why.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{device}: cannot {what}: {reason}")]
pub struct DeviceError {
    /// The device's name.
    pub device: String,
    /// What was asked of it.
    pub what: &'static str,
    /// What the verb answered.
    pub reason: String,
}

/// Why no device was opened.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// There is none of that name.
    #[error("no device is called {name}: {}", listed(known))]
    Unknown {
        /// The name that was asked for.
        name: String,
        /// The names that there are.
        known: Vec<String>,
    },
    /// It is there, but cannot be used.
    #[error(transparent)]
    Device(#[from] DeviceError),
}

impl Device {
    fn open(found: &verbs_safe::Device, provider: Provider) -> Result<Device, DeviceError> {
        let fail = |what, e: &dyn fmt::Display| DeviceError {
            device: found.name().to_owned(),
            what,
            reason: e.to_string(),
        };
        let context = found.open().map_err(|e| fail("be opened", &e))?;
        let pd = context.alloc_pd().map_err(|e| fail("allocate a protection domain", &e))?;
        Ok(Device { context, pd, provider })
    }

    /// Its name: `mlx5_0`, `rxe0`, `soft0`.
    #[must_use]
    pub fn name(&self) -> &str {
        self.context.device_name()
    }

    /// Who provides it.
    #[must_use]
    pub fn provider(&self) -> Provider {
        self.provider
    }

    /// Whether it reaches other processes. `soft0` does, those of the same user on the same
    /// machine, where the system lets it (`soft_rnic::crosses_processes` says why not).
    #[must_use]
    pub fn crosses_processes(&self) -> bool {
        self.confined().is_none()
    }

    /// Why it reaches no other process, if it [does not](Self::crosses_processes).
    #[must_use]
    pub fn confined(&self) -> Option<String> {
        match (self.provider, self.name()) {
            (Provider::RdmaCore, _) => None,
            (_, SOFT) => soft_rnic::crosses_processes().err(),
            _ => Some("a device at a distance is within one process".into()),
        }
    }

    /// Its context, for whoever wants verbs.
    #[must_use]
    pub fn context(&self) -> &Context {
        &self.context
    }

    /// The protection domain that connections are made in. Memory that is registered in it
    /// for one peer's writes or reads is within reach of all peers that learn its key, those
    /// of connections as well: register it elsewhere if they are not to be trusted with it.
    #[must_use]
    pub fn pd(&self) -> &ProtectionDomain {
        &self.pd
    }

    /// A port that carries nothing now, and what to do about it.
    pub(crate) fn inactive(&self, port: &PortAttr) -> DeviceError {
        let reason = format!("it is {}: check its link (`rdma link`, `ip link`)", port.state);
        self.error("use the port", &reason)
    }

    pub(crate) fn error(&self, what: &'static str, reason: &dyn fmt::Display) -> DeviceError {
        DeviceError { device: self.name().to_owned(), what, reason: reason.to_string() }
    }
}

/// The devices that there are, as a sentence.
fn listed(known: &[String]) -> String {
    let verb = if known.len() == 1 { "is" } else { "are" };
    format!("there {verb} {}", known.join(", "))
}

/// The tables that there are: the embedded device always, rdma-core where it is.
fn providers() -> Vec<(Provider, Table)> {
    let soft = (Provider::Soft, soft_rnic::table());
    let core = verbs_sys::load().ok().map(|table| (Provider::RdmaCore, table));
    core.into_iter().chain([soft]).collect()
}

/// Every device, cards first.
fn all() -> Vec<(Provider, verbs_safe::Device)> {
    let of = |(provider, table)| {
        let devices = verbs_safe::devices(table).unwrap_or_default();
        devices.into_iter().map(move |d| (provider, d))
    };
    providers().into_iter().flat_map(of).collect()
}

/// Opens the device called `name`; without a name, the first card with an active
/// port, else `soft0`. `soft0@5us`, with any number of us or ns, is a device like `soft0`
/// within this process, where each request takes a round trip of that long
/// ([`soft_rnic::distant`]): what depends on latency shows.
///
/// ```
/// let device = rdma_conn::device::open(Some("soft0"))?;
/// assert_eq!(device.name(), "soft0");
/// assert_eq!(rdma_conn::device::open(Some("soft0@5us"))?.name(), "soft0@5us");
/// assert!(rdma_conn::device::open(Some("mlx9_9")).is_err());
/// # Ok::<(), rdma_conn::device::OpenError>(())
/// ```
///
/// # Errors
/// [`OpenError::Unknown`] with the names that there are; [`OpenError::Device`].
pub fn open(name: Option<&str>) -> Result<Device, OpenError> {
    let distant = name.and_then(round_trip).map(soft_rnic::distant);
    let devices = all();
    let Some(name) = distant.as_deref().or(name) else { return open_first(&devices) };
    let found = devices.iter().find(|(_, d)| d.name() == name);
    let (provider, device) = found.ok_or_else(|| OpenError::Unknown {
        name: name.to_owned(),
        known: devices.iter().map(|(_, d)| d.name().to_owned()).collect(),
    })?;
    Ok(Device::open(device, *provider)?)
}

/// What stands behind the embedded device's name: `soft0@5us`, `soft0@500ns`.
fn round_trip(name: &str) -> Option<Duration> {
    let time = name.strip_prefix(SOFT)?.strip_prefix('@')?;
    let [us, ns] = ["us", "ns"].map(|unit| time.strip_suffix(unit).and_then(|n| n.parse().ok()));
    us.map(Duration::from_micros).or_else(|| ns.map(Duration::from_nanos))
}

fn open_first(devices: &[(Provider, verbs_safe::Device)]) -> Result<Device, OpenError> {
    for (provider, found) in devices {
        match Device::open(found, *provider) {
            Ok(device) if device.has_active_port() => return Ok(device),
            Ok(_) => {}
            Err(e) => tracing::warn!(error = %e, "device passed over"),
        }
    }
    open(Some(SOFT))
}

/// Why `soft0` has not found the process of a peer, if it has looked for one in vain and has
/// found none since: [`soft_rnic::unmet_peer`].
#[must_use]
pub fn unmet_peer() -> Option<String> {
    soft_rnic::unmet_peer()
}

/// Opens the embedded device. What is registered with one opening belongs to that alone:
/// threads that share buffers or connections share a clone of one [`Device`].
///
/// # Errors
/// When memory or descriptors are short.
pub fn soft() -> Result<Device, OpenError> {
    open(Some(SOFT))
}

/// Opens the device that [`DEVICE_VARIABLE`] names, else (also where it is empty) `soft0`:
/// what every test and every example runs on.
///
/// # Errors
/// As [`open`].
pub fn of_environment() -> Result<Device, OpenError> {
    open(Some(wanted(std::env::var(DEVICE_VARIABLE).as_deref().ok())))
}

/// The device that a variable names; an empty one names none.
fn wanted(variable: Option<&str>) -> &str {
    variable.filter(|name| !name.is_empty()).unwrap_or(SOFT)
}

impl Device {
    fn has_active_port(&self) -> bool {
        let ports = self.context.attr().map_or(1, |attr| attr.ports);
        (1..=ports).any(|n| self.context.port(n).is_ok_and(|port| port.is_active))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_device_is_and_several_are() {
        let unknown = |known: &[&str]| OpenError::Unknown {
            name: "rxe9".into(),
            known: known.iter().map(|name| (*name).to_owned()).collect(),
        };
        let says = |known: &[&str]| unknown(known).to_string();
        assert_eq!(says(&["soft0"]), "no device is called rxe9: there is soft0");
        assert_eq!(says(&["rxe0", "soft0"]), "no device is called rxe9: there are rxe0, soft0");
    }

    #[test]
    fn an_empty_variable_names_no_device() {
        assert_eq!([None, Some(""), Some("rxe0")].map(wanted), [SOFT, SOFT, "rxe0"]);
    }
}
