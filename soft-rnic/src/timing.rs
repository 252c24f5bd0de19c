//! Times of requests, and what is drawn for them: deadlines, the costs of a card, the faults of a
//! network, the clock of a simulation. What runs at these times is in `schedule`.

pub(crate) mod card;
pub(crate) mod charge;
pub(crate) mod network;
pub(crate) mod simulation;
pub(crate) mod timer;
pub(crate) mod times;
