//! Programs in worlds (feature `simulation`): threads, time and devices of a program run in virtual time, in an order
//! that a seed decides.
//!
//! 1. [`run`] runs a program in the world of a seed. It gets a device of its own by [`WorldDevice`],
//!    [`Simulation`] or, on a network, [`WorldNetwork::device`], and opens it by its name with [`device::open`](crate::device::open).
//!    Devices of one [`WorldMachine`] ([`WorldKind::Process`]) are those of processes, of which one may be
//!    [killed](WorldDevice::kill).
//! 2. The program starts threads by [`spawn`] or [`scope`], sleeps by [`sleep`] and reads the clock by [`now`];
//!    its locks are [`Mutex`] and [`Condvar`]. All calls of this crate may block as ever. Futures (`aio`, with the feature
//!    `tokio`) are polled by [`block_on`], one on a thread: a runtime would wait outside of the world.
//! 3. A panic, a wait that nothing ends, a thread that stays, and more steps or time than the [`Limits`] permit are
//!    a [`Failure`]. The same seed gives the same [`Report`], its hash included.
//!
//! A [`Simulation`] executes requests in calls that poll it. Where threads sleep, one more has to be in its
//! [`drive`](Simulation::drive), from before the first connection until the program sets a flag: without it, nothing
//! that was posted is executed meanwhile. The other devices need no such thread.
//!
//! # When a seed fails
//!
//! - Run the same seed again, with more [`Limits::events`]: [`Report::events`] are the last ones, among them those that
//!   the program adds by [`note`]. If the hash differs from the first time, the program breaks the contract below.
//! - Have the program take its steps from a list, and its sizes from the edges: leave out half of the steps, then
//!   a quarter, then one, as long as one of a few seeds fails. Another order of threads may be needed when steps are
//!   gone.
//! - Play each such case in a process of its own: threads of a world that has failed stay parked, with the locks that
//!   they hold. `worlds/src/shrink.rs` and `worlds/src/main.rs` of the repository do all of this.
//! - Keep the smallest case as a test, with some seeds beside its own.
//!
//! ```
//! use rdma_conn::simulation::{self, Limits, Nature, WorldDevice, WorldKind};
//! use rdma_conn::{RecvHalf, SendHalf, SendRecv, pair};
//!
//! let program = || {
//!     let world = WorldDevice::new(WorldKind::Near);
//!     let device = rdma_conn::device::open(Some(world.name())).unwrap();
//!     let (mut left, mut right) = pair::<SendRecv>(&device, &device, &Default::default()).unwrap();
//!     let sender = simulation::spawn("sender", move || left.sender.send_acked(b"hello").unwrap());
//!     assert_eq!(&*right.receiver.recv().unwrap(), b"hello");
//!     sender.unwrap().join().unwrap();
//! };
//! let (report, ended) = simulation::run(7, Nature::default(), Limits::default(), program);
//! ended.unwrap();
//! let (again, _) = simulation::run(7, Nature::default(), Limits::default(), program);
//! assert_eq!(again.hash, report.hash);
//! ```
//!
//! **Contract: the program uses no other source of randomness or time, and does not wait in another
//! way.** Any other wait blocks its world; any other randomness does not repeat.

pub use host::future::block_on;
pub use host::random::Random;
pub use host::sync::{Condvar, Mutex, RwLock};
pub use host::thread::{JoinHandle, scope, spawn, yield_now};
pub use host::time::{now, sleep};
pub use host::world::{Failure, Limits, Nature, Report, note, run};
pub use soft_rnic::{
    Faults, NetworkNature, Simulation, WorldDevice, WorldKind, WorldMachine, WorldNetwork,
};
