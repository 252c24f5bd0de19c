//! One list of devices: those of rdma-core, and the embedded `soft0`.
//!
//! [`open`] takes a device by name, or the first card with an active port, or `soft0`; [`survey()`]
//! lists the devices, and obstacles to others.

use std::fmt;
use std::net::IpAddr;
use std::time::Duration;

use verbs_safe::{Context, PortAttr, ProtectionDomain};
use verbs_sys::Table;

mod counters;
mod network;
mod slowness;
mod survey;
pub(crate) mod translation;

pub use counters::{CounterError, Counters};
pub use network::{Nameable, nameable};
pub use soft_rnic::{NetworkFaults, set_network_faults};
pub use survey::{Found, Obstacle, PortReport, Survey, survey};

/// The name of the embedded device.
pub const SOFT: &str = "soft0";

/// Prefix of the names of devices that speak RoCE v2 over UDP; behind it is an address.
const ROCE: &str = "roce:";

/// The name of such a device without an address; options may follow it.
const ROCE_ALONE: &str = "roce";

/// The environment variable that names the device of tests and examples.
pub const DEVICE_VARIABLE: &str = "RDMA_CONN_DEVICE";

/// An open device and a protection domain on it. Clones are handles of the same.
///
/// A peer reaches the memory that is registered for peers in the protection domain of the
/// queue pair that is connected to it, if it learns or guesses the key:
///
/// | connection | domain |
/// |---|---|
/// | Send/Receive | one for all on the device, in which nothing is registered for peers |
/// | Buffered Read, Buffered Write | one for each half |
/// | a multicast group | one for the group |
/// | Direct Read, raw queue pairs | that of this handle: [`pd`](Device::pd) |
#[derive(Clone)]
pub struct Device {
    context: Context,
    pd: ProtectionDomain,
    /// Domain of queue pairs and pools that only send and receive.
    messages: ProtectionDomain,
    provider: Provider,
    /// Domains that are made have their memory on demand.
    is_on_demand: bool,
}

/// The provider of a device.
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

/// Operation that a device refused, and the reason.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{device}: cannot {what}: {reason}")]
pub struct DeviceError {
    /// The device's name.
    pub device: String,
    /// The operation that failed.
    pub what: &'static str,
    /// The verb's error.
    pub reason: String,
}

/// Reason why no device was opened.
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
        let domain = || context.alloc_pd().map_err(|e| fail("allocate a protection domain", &e));
        let (pd, messages) = (domain()?, domain()?);
        Ok(Device { context, pd, messages, provider, is_on_demand: false })
    }

    /// Its name: `mlx5_0`, `rxe0`, `soft0`.
    #[must_use]
    pub fn name(&self) -> &str {
        self.context.device_name()
    }

    /// Its provider.
    #[must_use]
    pub fn provider(&self) -> Provider {
        self.provider
    }

    /// Reports whether a processor of this machine moves the bytes, and no card: then a request
    /// carries a long payload at no more cost than a short one, and memory that is a file's costs
    /// the processor more than a write to the file.
    #[must_use]
    pub fn copies_on_processor(&self) -> bool {
        self.provider == Provider::Soft
    }

    /// Reports whether requests in flight arrive and complete only while one of the device's
    /// completion queues is polled, or 50 µs later. Then a wait that polls memory has to poll a
    /// queue as well. True of a distant soft device.
    ///
    /// ```
    /// let near = rdma_conn::device::soft()?;
    /// assert!(!near.advances_when_polled());
    /// let far = rdma_conn::device::open(Some("soft0@5us"))?;
    /// assert!(far.advances_when_polled());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn advances_when_polled(&self) -> bool {
        self.provider == Provider::Soft && self.name() != SOFT
    }

    /// Reports whether it reaches other processes. `soft0` does, those of the same user on the same
    /// machine, where the system lets it (`soft_rnic::crosses_processes` says why not).
    #[must_use]
    pub fn crosses_processes(&self) -> bool {
        self.confined().is_none()
    }

    /// Returns the reason why it reaches no other process, if it
    /// [does not](Self::crosses_processes).
    #[must_use]
    pub fn confined(&self) -> Option<String> {
        match (self.provider, self.name()) {
            (Provider::RdmaCore, _) => None,
            (_, SOFT) => soft_rnic::crosses_processes().err(),
            (_, name) if name.starts_with(ROCE) => None,
            _ => Some("a device at a distance is within one process".into()),
        }
    }

    /// Reports whether it speaks RoCE v2 over UDP, and reaches other machines.
    #[must_use]
    pub fn is_wired(&self) -> bool {
        self.provider == Provider::Soft && soft_rnic::is_on_the_network(self.name())
    }

    /// True of a device that reaches devices with its own GID only: those of other processes of
    /// this user, or none.
    pub(crate) fn is_local(&self) -> bool {
        self.provider == Provider::Soft && !self.is_wired()
    }

    /// Its context, for programs that call verbs themselves.
    #[must_use]
    pub fn context(&self) -> &Context {
        &self.context
    }

    /// The protection domain of this handle: that of buffers and raw queue pairs which the
    /// program makes, and of Direct Read. Memory that is registered in it for one peer's
    /// writes or reads is within reach of all peers of these that learn its key: give
    /// peers that are not to be trusted with each other's memory a handle each, from
    /// [`isolated`](Self::isolated).
    #[must_use]
    pub fn pd(&self) -> &ProtectionDomain {
        &self.pd
    }

    /// A handle of the same open device with a [`pd`](Self::pd) of its own: a peer of a Direct Read
    /// connection that is made with it cannot reach memory that was registered with another handle,
    /// nor the other way round.
    ///
    /// ```
    /// let device = rdma_conn::device::soft()?;
    /// let isolated = device.isolated()?;
    /// assert!(isolated.context().is_same(device.context()));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`DeviceError`] when the device has no more protection domains.
    pub fn isolated(&self) -> Result<Device, DeviceError> {
        Ok(Device { pd: self.new_domain()?, ..self.clone() })
    }

    /// A handle of the same device with on-demand paging: connections made with it pin no page, and
    /// the device requests each page at its first use.
    ///
    /// ```
    /// let device = rdma_conn::device::soft()?;
    /// match device.on_demand() {
    ///     Ok(paged) => drop(rdma_conn::pair::<rdma_conn::BufferedRead>(&paged, &device, &Default::default())?),
    ///     Err(e) => println!("{e}"), // the device, or the kernel below it, cannot
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`DeviceError`]: the device does not offer it, or has no more protection domains.
    pub fn on_demand(&self) -> Result<Device, DeviceError> {
        let paged = Device { is_on_demand: true, ..self.clone() };
        let (pd, messages) = (paged.new_domain()?, paged.new_domain()?);
        Ok(Device { pd, messages, ..paged })
    }

    /// A protection domain for one half alone: with any key that a peer learns or guesses, it
    /// reaches no memory of another connection through the queue pairs of its own.
    pub(crate) fn new_domain(&self) -> Result<ProtectionDomain, DeviceError> {
        let failed = |e: &dyn fmt::Display| self.error("allocate a protection domain", e);
        match self.is_on_demand {
            true => self.context.alloc_pd_on_demand().map_err(|e| failed(&e)),
            false => self.context.alloc_pd().map_err(|e| failed(&e)),
        }
    }

    /// The protection domain of Send/Receive: nothing is registered in it for peers.
    pub(crate) fn messages_pd(&self) -> &ProtectionDomain {
        &self.messages
    }

    /// The error of a port that is not active, with the remedy.
    pub(crate) fn inactive(&self, port: &PortAttr) -> DeviceError {
        let reason = format!("it is {}: check its link (`rdma link`, `ip link`)", port.state);
        self.error("use the port", &reason)
    }

    /// The error of an operation that the device refused: "cannot `what`: `reason`".
    #[must_use]
    pub fn error(&self, what: &'static str, reason: &dyn fmt::Display) -> DeviceError {
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

/// Opens the device called `name`; without a name, the first card with an active port, else
/// `soft0`. `soft0@5us`, with any number of us or ns, is a device like `soft0` within this process,
/// where each request takes a round trip of this time ([`soft_rnic::distant`]): it shows effects of
/// latency. `soft0@card=connectx5` takes a card's times ([`soft_rnic::card`]), multiplied by the
/// least whole number at which no operation takes longer on this machine. Its name includes that
/// number (`soft0@card=connectx5,slow=8`), which may be given. `roce:10.0.0.1`, or `roce:eth0` for
/// the address of an interface, speaks RoCE v2 over UDP from there ([`soft_rnic::Roce`]).
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
    let full = name.map(full_name).transpose()?;
    let name = full.as_deref();
    if let Some(card) = name.and_then(|name| name.strip_prefix(SOFT)?.strip_prefix("@card=")) {
        return open_card(card);
    }
    if let Some(address) = name.and_then(|name| name.strip_prefix(ROCE)) {
        return open_roce(address);
    }
    if let Some(name) = name.filter(|name| is_roce_without_address(name)) {
        return Err(without_address(name).into());
    }
    let distant = name.and_then(round_trip).map(soft_rnic::distant);
    match distant.as_deref().or(name) {
        Some(name) => open_listed(name),
        None => open_first(&all()),
    }
}

/// The soft device that speaks RoCE v2 over UDP: an address, and options ([`soft_rnic::Roce`]).
fn open_roce(address: &str) -> Result<Device, OpenError> {
    let error = |reason: &dyn fmt::Display| DeviceError {
        device: format!("{ROCE}{address}"),
        what: "open the device",
        reason: reason.to_string(),
    };
    let roce: soft_rnic::Roce = address.parse().map_err(|e| error(&e))?;
    open_listed(&roce.list().map_err(|e| error(&e))?)
}

/// Reports whether a name asks for RoCE v2 over UDP, and says nothing of the address: `roce`, or
/// `roce,loss=0.01`.
#[must_use]
pub fn is_roce_without_address(name: &str) -> bool {
    name.strip_prefix(ROCE_ALONE).is_some_and(|rest| rest.is_empty() || rest.starts_with(','))
}

/// The name of the device on this address that a name [without one](is_roce_without_address) asks
/// for; any other name unchanged.
///
/// ```
/// use rdma_conn::device::on_address;
///
/// assert_eq!(on_address("roce,seed=7", "10.0.0.1".parse()?), "roce:10.0.0.1,seed=7");
/// assert_eq!(on_address("soft0", "10.0.0.1".parse()?), "soft0");
/// # Ok::<(), std::net::AddrParseError>(())
/// ```
#[must_use]
pub fn on_address(name: &str, ip: IpAddr) -> String {
    match name.strip_prefix(ROCE_ALONE) {
        Some(options) if is_roce_without_address(name) => format!("{ROCE}{ip}{options}"),
        _ => name.to_owned(),
    }
}

fn without_address(name: &str) -> DeviceError {
    DeviceError {
        device: name.to_owned(),
        what: "open the device",
        reason: "it has no address: write roce:ADDRESS or roce:INTERFACE (`rdma-conn devices` lists them)"
            .into(),
    }
}

/// The name of a device in full: that of a card's device (`soft0@card=connectx5`) says how many
/// times slower than the card it is, the least whole number with which no call takes longer here
/// (it is measured); any other is unchanged. A program that has its clock go as slowly
/// (`host::time::slow_down`) before it opens the device is in the card's time.
///
/// ```
/// let card = rdma_conn::device::full_name("soft0@card=connectx5")?;
/// assert!(card.starts_with("soft0@card=connectx5,slow="));
/// assert_eq!(rdma_conn::device::full_name(&card)?, card);
/// assert_eq!(rdma_conn::device::full_name("mlx5_0")?, "mlx5_0");
/// # Ok::<(), rdma_conn::device::OpenError>(())
/// ```
///
/// # Errors
/// [`OpenError::Unknown`]: there is no such card. [`OpenError::Device`].
pub fn full_name(name: &str) -> Result<String, OpenError> {
    let card = name.strip_prefix(SOFT).and_then(|name| name.strip_prefix("@card="));
    let Some(card) = card.filter(|card| !card.contains(",slow=")) else { return Ok(name.into()) };
    let costs = soft_rnic::call_costs(card).ok_or_else(|| unknown_card(card))?;
    let fast = open_listed(&list_card(card, 1.0)?)?;
    let slow = fast.slowness(&costs)?;
    Ok(format!("{name},slow={slow}"))
}

/// The soft device that takes the time of a card, `connectx5,slow=8`.
fn open_card(card: &str) -> Result<Device, OpenError> {
    let (name, slow) = card.split_once(",slow=").ok_or_else(|| unknown_card(card))?;
    open_listed(&list_card(name, slow.parse().map_err(|_| unknown_card(card))?)?)
}

fn list_card(card: &str, slow: f64) -> Result<String, OpenError> {
    soft_rnic::card(card, slow).ok_or_else(|| unknown_card(&format!("{card},slow={slow}")))
}

fn unknown_card(card: &str) -> OpenError {
    OpenError::Unknown {
        name: format!("{SOFT}@card={card}"),
        known: vec![format!("{SOFT}@card=connectx5"), format!("{SOFT}@card=connectx5,slow=8")],
    }
}

fn open_listed(name: &str) -> Result<Device, OpenError> {
    let devices = all();
    let found = devices.iter().find(|(_, d)| d.name() == name);
    let (provider, device) = found.ok_or_else(|| OpenError::Unknown {
        name: name.to_owned(),
        known: devices.iter().map(|(_, d)| d.name().to_owned()).collect(),
    })?;
    Ok(Device::open(device, *provider)?)
}

/// Returns the round-trip time that stands behind the embedded device's name: `soft0@5us`,
/// `soft0@500ns`.
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

/// Returns the reason why `soft0` has not found the process of a peer, if its last search for one
/// failed: [`soft_rnic::peer_not_found()`].
#[must_use]
pub fn peer_not_found() -> Option<String> {
    soft_rnic::peer_not_found()
}

/// Returns the reasons why a peer of a device on the network may not have answered (`RETRY_EXC`),
/// as far as this end can know, the likeliest cause first, and what to do next.
#[must_use]
pub fn peer_unreached() -> Option<String> {
    let unreached = soft_rnic::peer_unreached()?;
    let translated = translation::about(unreached.peer).map(|suspicion| format!("{suspicion}; "));
    Some(format!("{}{unreached}", translated.unwrap_or_default()))
}

/// Opens the embedded device. Memory that is registered with one opening belongs to that
/// opening alone: threads that share buffers or connections share a clone of one [`Device`].
///
/// # Errors
/// When memory or descriptors are short.
pub fn soft() -> Result<Device, OpenError> {
    open(Some(SOFT))
}

/// Opens the device that [`DEVICE_VARIABLE`] names; `soft0` if it is unset or empty. Every test and
/// every example runs on this device.
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
mod tests;
