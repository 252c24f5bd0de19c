//! The flags of each command.

mod doctor;
mod roced;
mod soft;
mod trace;

pub use doctor::Doctor;
pub use roced::Roced;
pub use soft::Soft;
pub use trace::Trace;
