//! The flags of each command.

mod doctor;
mod roced;
mod soft;
mod trace;

pub use doctor::DoctorArgs;
pub use roced::RocedArgs;
pub use soft::SoftArgs;
pub use trace::TraceArgs;
