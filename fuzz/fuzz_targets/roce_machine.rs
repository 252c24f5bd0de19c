//! Both ends of a reliable connection over any network, and with packets that no peer has sent.
#![no_main]

use libfuzzer_sys::fuzz_target;
use roce_core::oracle::{Connection, Op, Terms};

fuzz_target!(|input: (bool, Terms, Vec<Op>)| {
    // Without forged packets, all has to end as in the model.
    let (forges, terms, ops) = input;
    let mut connection = Connection::new(terms);
    ops.into_iter()
        .filter(|op| forges || !matches!(op, Op::Forge(..)))
        .take(300)
        .for_each(|op| connection.apply(op));
    connection.settle();
});
