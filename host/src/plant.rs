//! Faults that tests plant into the code, to see worlds find them.

pub use crate::fault::Plant;

/// Reports whether this fault is planted here; outside of a world, none is.
#[inline(always)]
#[must_use]
pub fn is_planted(plant: Plant) -> bool {
    in_world!(return |here| here.is_planted(plant));
    let _ = plant;
    false
}
