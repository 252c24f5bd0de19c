//! The flags that several commands have, and values that people may write for them.

mod common;
pub mod sweep;
pub mod values;
mod wait;

pub use common::{CommonArgs, EndsArgs, MEASURED, MOST, RoundsArgs, refused, seconds};
pub use wait::WaitFlag;
