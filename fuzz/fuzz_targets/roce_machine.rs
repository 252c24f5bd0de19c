//! Both ends of a reliable connection over any network, and with packets that no peer has sent.
#![no_main]

use libfuzzer_sys::fuzz_target;
use roce_core::oracle::{CheckedConnection, ConnectionOp, ConnectionParams};

fuzz_target!(|input: (bool, ConnectionParams, Vec<ConnectionOp>)| {
    // Without forged packets, all has to end as in the model.
    let (forges, params, ops) = input;
    let mut connection = CheckedConnection::new(params);
    ops.into_iter()
        .filter(|op| forges || !matches!(op, ConnectionOp::Forge(..)))
        .take(300)
        .for_each(|op| connection.apply(op));
    connection.settle();
});
