//! The example of simulated worlds, alone in its process: a lock that a thread of another test holds would
//! make a seed's world another one.
//!
//! Only on soft0: its worlds make devices of their own.
//!
//! Runs of the whole workspace have it, in which the crate `worlds` turns the feature `simulation` on.

#[path = "../examples/simulated_world.rs"]
mod example;

#[test]
fn a_world_finds_the_lost_request_and_none_once_it_is_repaired() {
    example::main().unwrap();
}
