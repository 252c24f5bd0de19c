//! The operations of the machine, and a naive model of it.
