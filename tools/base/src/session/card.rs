//! Devices that take a card's time: more slowly than the card, or in virtual time.

use rdma_conn::device::{self, Device, OpenError};

use crate::cli::CommonArgs;
use crate::outcome::CommandResult;

/// The end of the name of a device in virtual time.
pub const WORLD: &str = ",world";

/// Opens a device. Where it is slower than the card that it stands for, the clock of this process goes as slowly: what is
/// measured, and what waits, is in the card's time.
pub fn open(name: Option<&str>) -> Result<Device, OpenError> {
    #[cfg(feature = "simulation")]
    if name.is_some_and(|name| name.ends_with(WORLD)) && host::is_in_world() {
        use rdma_conn::simulation::{WorldDevice, WorldKind};
        let mut device = OF_WORLD.lock();
        let device = device.get_or_insert_with(|| WorldDevice::new(WorldKind::Card));
        return device::open(Some(device.name()));
    }
    let full = name.map(device::full_name).transpose()?;
    if let Some(slow) = full.as_deref().and_then(slow) {
        // A process measures one card.
        host::time::slow_down(slow);
    }
    device::open(full.as_deref())
}

/// Returns how many times slower a device is than the card that it stands for, by its name.
pub fn slow(device: &str) -> Option<f64> {
    device.split_once(",slow=")?.1.parse().ok()
}

/// The device of the other end in this process, if it is another one: each that is opened is a card of its own where it
/// takes a card's time.
pub fn peer_device(device: &Device) -> Result<Option<Device>, OpenError> {
    let is_card = device.name().contains("@card=") || host::is_in_world();
    is_card.then(|| device::open(Some(device.name()))).transpose()
}

/// Runs a command that measures: in a world, if its device is in virtual time.
pub fn in_its_time(
    common: &CommonArgs,
    measure: impl FnOnce() -> CommandResult + Send + 'static,
) -> CommandResult {
    if !common.device.as_deref().is_some_and(|name| name.ends_with(WORLD)) {
        return measure();
    }
    in_world(measure)
}

#[cfg(not(feature = "simulation"))]
fn in_world(_: impl FnOnce() -> CommandResult) -> CommandResult {
    Err(crate::outcome::usage(
        "--device …,world: this build has no virtual time: build it with --features simulation",
    ))
}

/// The device of the world, in which the whole command runs.
#[cfg(feature = "simulation")]
static OF_WORLD: host::sync::Mutex<Option<rdma_conn::simulation::WorldDevice>> =
    host::sync::Mutex::new(None);

#[cfg(feature = "simulation")]
fn in_world(measure: impl FnOnce() -> CommandResult + Send + 'static) -> CommandResult {
    use rdma_conn::simulation::{self, Limits, Nature};
    host::thread::pin_to_cpu(host::thread::processor() as usize);
    // Threads have a processor each: they take the time that their calls cost, and no other. They meet where they wait.
    let nature =
        Nature { own_processors: true, switch_one_in: 256, plant: planted(), ..Nature::default() };
    let limits = Limits { steps: u64::MAX, time: std::time::Duration::from_secs(3600), events: 60 };
    let program = move || {
        let outcome = measure();
        // Its threads end with it.
        drop(OF_WORLD.lock().take());
        outcome
    };
    let (_, ended) = simulation::run(1, nature, limits, program);
    ended.unwrap_or_else(|failure| Err(anyhow::anyhow!("{failure}")))
}

/// The fault that a test plants into the code, to see a figure's expectation fail.
#[cfg(feature = "simulation")]
fn planted() -> Option<host::plant::Plant> {
    let name = std::env::var("RDMA_CONN_PLANT").ok()?;
    host::plant::Plant::OF_FIGURES.into_iter().find(|plant| format!("{plant:?}") == name)
}

#[cfg(test)]
mod tests;
