//! Programs in worlds (feature `simulation`): threads, time and devices of a program run in virtual time, in an order
//! that a seed decides.
//!
//! 1. [`run`] runs a program in the world of a seed. It gets a device of its own by [`WorldDevice`],
//!    [`Simulation`] or, on a network, [`WorldNetwork::device`], and opens it by its name with [`device::open`](crate::device::open).
//! 2. The program starts threads by [`spawn`] or [`scope`], sleeps by [`sleep`] and reads the clock by [`now`];
//!    its locks are [`Mutex`] and [`Condvar`]. All calls of this crate may block as ever.
//! 3. A panic, a wait that nothing ends, a thread that stays, and more steps or time than the [`Limits`] permit are
//!    a [`Failure`]. The same seed gives the same [`Report`], its hash included.
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

pub use host::random::Random;
pub use host::sync::{Condvar, Mutex, RwLock};
pub use host::thread::{JoinHandle, scope, spawn, yield_now};
pub use host::time::{now, sleep};
pub use host::world::{Failure, Limits, Nature, Report, note, run};
pub use soft_rnic::{Faults, NetworkNature, Simulation, WorldDevice, WorldKind, WorldNetwork};
