//! Each end alone, with a peer that lies: agrees with its model, and a refused datagram changes
//! nothing.
#![no_main]

use conn_core::datagram::oracle::{
    CheckedFragmentReceiver, CheckedFragmentSender, ForgedAck, ForgedFragment,
};
use conn_core::exhaustive::CheckedMachine;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: (u8, u64, Vec<ForgedFragment>, Vec<ForgedAck>)| {
    let (window, already, claims, acks) = input;
    let window = u32::from(window) % conn_core::datagram::MAX_WINDOW + 1;
    let mut receiver =
        CheckedFragmentReceiver::new(window, already / 2).expect("a window that can be");
    claims.into_iter().for_each(|claim| receiver.apply(claim));
    let mut sender = CheckedFragmentSender::new(window, already / 2).expect("a window that can be");
    acks.into_iter().for_each(|ack| sender.apply(ack));
});
