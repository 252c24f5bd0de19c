//! Each end alone, with a peer that lies: agrees with its model, and a refused datagram changes
//! nothing.
#![no_main]

use conn_core::datagram::oracle::{Claim, Receiving, Said, Sending};
use conn_core::exhaustive::Pair;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: (u8, u64, Vec<Claim>, Vec<Said>)| {
    let (window, already, claims, acks) = input;
    let window = u32::from(window) % conn_core::datagram::MAX_WINDOW + 1;
    let mut receiver = Receiving::new(window, already / 2).expect("a window that can be");
    claims.into_iter().for_each(|claim| receiver.apply(claim));
    let mut sender = Sending::new(window, already / 2).expect("a window that can be");
    acks.into_iter().for_each(|ack| sender.apply(ack));
});
