//! Faults that a program on `soft0` is to meet: requests that fail, and events of its port.
//!
//! [`VARIABLE`] asks for them when a device is opened, in the words of a [`FaultPlan`].
//!
//! **Contract: under one plan, what strikes a request follows from the seed, the ordinal of its queue
//! pair and the number of the request.** The ordinal is the order in which the process has
//! created its queue pairs, from 1 on; requests of a send queue are counted from 0 on, and the
//! count continues when the queue pair is reset. Neither time nor other threads nor the peer change
//! what is drawn, so that a program that posts the same requests fails the same way again.
//!
//! 1. `injector` finds out whether there is a plan, and numbers queue pairs;
//! 2. `queue` draws for each request, before it leaves (`engine::injection`): the peer takes no part;
//! 3. `tally` counts what they have met, for a line at the exit;
//! 4. `objects::timed_events` raises the events, each at its time after its device was opened,
//!    in that context and those that are imported from it.
//!
//! A process whose requests are to meet faults takes other functions for its posts, which queue
//! each request, as one that is traced does: without a plan a queue that is run, and a batch, take a
//! branch. Only `soft0`
//! itself has them: a [`Simulation`](crate::Simulation) has faults of its own.

pub(crate) mod injector;
mod plan;
pub(crate) mod queue;
mod tally;

pub use injector::draw_seed;
pub(crate) use plan::PORT_EVENTS;
pub use plan::{EVENTS, FaultPlan, LONGEST, MAX_EVENTS, PlanError};

/// The environment variable that has the plan.
pub const VARIABLE: &str = "RDMA_CONN_SOFT_FAULTS";
