//! Devices that take a card's time (`soft0@card=…`): what they are called, and that what is sent over
//! them arrives. How long it takes is in the tests of soft-rnic's plan of times.
//!
//! Only on soft0: its devices take a card's time.

mod support;

use rdma_conn::device::{self, OpenError};
use rdma_conn::{
    BufferedRead, BufferedWrite, DirectRead, DirectWrite, Protocol, RecvHalf, SendHalf, SendRecv,
    SharedWrite, pair,
};

#[test]
fn a_card_is_named_with_how_much_slower_it_is() {
    let chosen = device::open(Some("soft0@card=connectx5")).unwrap();
    let slow = chosen.name().strip_prefix("soft0@card=connectx5,slow=").unwrap();
    assert!(slow.parse::<f64>().unwrap() >= 1.0, "{slow}");
    assert!(chosen.advances_when_polled() && !chosen.crosses_processes());
    let given = device::open(Some("soft0@card=connectx5,slow=2")).unwrap();
    assert_eq!(given.name(), "soft0@card=connectx5,slow=2");
    for name in [
        "soft0@card=telepathy",
        "soft0@card=connectx5,slow=0.5",
        "soft0@card=",
        "soft0@card=connectx5,slow=x",
    ] {
        let refused = device::open(Some(name)).map(|device| device.name().to_owned());
        assert!(
            matches!(&refused, Err(OpenError::Unknown { known, .. }) if known[0] == "soft0@card=connectx5"),
            "{name}: {refused:?}"
        );
    }
}

#[test]
fn messages_of_every_connection_arrive() {
    let card = device::open(Some("soft0@card=connectx5,slow=1")).unwrap();
    over::<SendRecv>(&card);
    over::<BufferedRead>(&card);
    over::<BufferedWrite>(&card);
    over::<DirectRead>(&card);
    over::<DirectWrite>(&card);
    over::<SharedWrite>(&card);
}

fn over<P: Protocol>(card: &device::Device) {
    let (left, right) = pair::<P>(card, card, &support::config::<P::Config>()).unwrap();
    let content = |number: usize| vec![number as u8; number * 37 % 3000];
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let mut sender = left.sender;
            for number in 0..300 {
                sender.send(&content(number)).unwrap();
            }
            sender.close().unwrap();
        });
        let mut receiver = right.receiver;
        for number in 0..300 {
            assert_eq!(*receiver.recv().unwrap(), *content(number), "{}", P::NAME);
        }
        assert!(receiver.recv().is_err());
    });
}
