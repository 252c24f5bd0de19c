use std::vec::Vec;

use proptest::prelude::*;

use super::random::draft as random_draft;
use super::*;

/// Seeds of each kind of network.
const SEEDS: u64 = 200;

fn runs(faults: FaultRates) {
    for seed in 0..SEEDS {
        random_run(seed, faults, 60);
    }
}

#[test]
fn all_complete_on_a_good_network() {
    runs(FaultRates::default());
}

#[test]
fn all_complete_when_packets_are_lost() {
    runs(FaultRates { loss: 10, ..FaultRates::default() });
    runs(FaultRates { loss: 30, ..FaultRates::default() });
}

#[test]
fn all_complete_when_packets_overtake_each_other() {
    runs(FaultRates { reordering: 30, ..FaultRates::default() });
}

#[test]
fn all_complete_when_packets_come_twice() {
    runs(FaultRates { duplication: 30, ..FaultRates::default() });
}

#[test]
fn all_complete_when_receive_requests_come_late() {
    runs(FaultRates { late_receives: 90, ..FaultRates::default() });
}

#[test]
fn all_complete_when_memory_is_not_there_at_times() {
    runs(FaultRates { absent: 10, ..FaultRates::default() });
    runs(FaultRates { absent: 10, loss: 10, ..FaultRates::default() });
}

#[test]
fn all_complete_when_the_network_is_congested() {
    runs(FaultRates { congestion: 5, ..FaultRates::default() });
    runs(FaultRates { congestion: 100, loss: 5, ..FaultRates::default() });
}

#[test]
fn all_complete_when_everything_goes_wrong() {
    let (congestion, absent) = (10, 20);
    let late_receives = 60;
    runs(FaultRates {
        loss: 10,
        duplication: 10,
        reordering: 10,
        congestion,
        late_receives,
        absent,
    });
}

#[test]
fn on_a_good_network_no_packet_is_sent_twice() {
    for seed in 0..50 {
        let mut random = Random(seed);
        let [window, read_packets, reads, entries, ..] = random.draw().to_le_bytes();
        let params =
            ConnectionParams { before_wrap: 9, window, read_packets, reads, entries, timeout: 5 };
        let mut connection = CheckedConnection::new(params);
        for _ in 0..60 {
            // A probe finds out whether an unsignaled request has arrived.
            let draft = RequestDraft { is_signaled: true, ..random_draft(&mut random) };
            connection.apply(ConnectionOp::Post(draft));
            connection.apply(ConnectionOp::Receives(1));
            connection.apply(ConnectionOp::Transmit(random.below(5) as u8));
            (0..random.below(5)).for_each(|_| {
                connection.apply(ConnectionOp::Deliver(PacketDirection::ToResponder, 0))
            });
            connection.apply(ConnectionOp::Respond(random.below(9) as u8));
            (0..random.below(9)).for_each(|_| {
                connection.apply(ConnectionOp::Deliver(PacketDirection::ToRequester, 0))
            });
            connection.apply(ConnectionOp::Poll);
        }
        connection.settle();
        assert_eq!(connection.transmitted, connection.least_packets(), "seed {seed}");
    }
}

/// Prints the history when a panic passes by.
struct OpsOnPanic(Vec<ConnectionOp>);

impl Drop for OpsOnPanic {
    fn drop(&mut self) {
        if std::thread::panicking() {
            std::eprintln!("the history that failed: {:?}", self.0);
        }
    }
}

/// Applies every sequence of `depth` operations, settles each, and returns how many there were.
fn every_history(
    at: &CheckedConnection,
    alphabet: &[ConnectionOp],
    depth: u32,
    history: &mut OpsOnPanic,
) -> u64 {
    if depth == 0 {
        at.clone().settle();
        return 1;
    }
    let mut count = 0;
    for &op in alphabet {
        history.0.push(op);
        let mut next = at.clone();
        next.apply(op);
        count += every_history(&next, alphabet, depth - 1, history);
        history.0.pop();
    }
    count
}

#[test]
fn every_short_history_ends_as_the_model() {
    use PacketDirection::*;
    let alphabet = [
        ConnectionOp::Transmit(2),
        ConnectionOp::Respond(2),
        ConnectionOp::Deliver(ToResponder, 0),
        ConnectionOp::Deliver(ToResponder, 1),
        ConnectionOp::Deliver(ToRequester, 0),
        ConnectionOp::Duplicate(ToResponder, 0),
        ConnectionOp::Lose(ToResponder, 0),
        ConnectionOp::Lose(ToRequester, 0),
        ConnectionOp::Pass(200),
    ];
    let (send, write, read, add) = (0, 3, 5, 7);
    let mut histories = 0;
    for kinds in [[send, read, add], [read, write, send], [add, read, write]] {
        let mut start = CheckedConnection::new(ConnectionParams {
            before_wrap: 2,
            window: 2,
            read_packets: 1,
            reads: 1,
            entries: 3,
            timeout: 0,
        });
        for kind in kinds {
            start.apply(ConnectionOp::Post(RequestDraft {
                kind,
                length: 257,
                offset: 0,
                is_signaled: kind != write,
                is_fenced: kind == add,
                is_solicited: false,
            }));
        }
        start.apply(ConnectionOp::Receives(1));
        start.apply(ConnectionOp::Transmit(1));
        histories += every_history(&start, &alphabet, 5, &mut OpsOnPanic(Vec::new()));
    }
    std::println!("reliable connection: {histories} histories");
    assert_eq!(histories, 3 * 9u64.pow(5));
}

fn params() -> impl Strategy<Value = ConnectionParams> {
    any::<[u8; 6]>().prop_map(|[before_wrap, window, read_packets, reads, entries, timeout]| {
        ConnectionParams { before_wrap, window, read_packets, reads, entries, timeout }
    })
}

fn draft() -> impl Strategy<Value = RequestDraft> {
    let length = prop_oneof![0..300u16, (0..9u16).prop_map(|packets| packets * 256), any::<u16>()];
    (any::<u8>(), length, any::<u16>(), prop::bool::weighted(0.2), any::<[bool; 2]>()).prop_map(
        |(kind, length, offset, is_fenced, [is_signaled, is_solicited])| RequestDraft {
            kind,
            length,
            offset,
            is_signaled,
            is_fenced,
            is_solicited,
        },
    )
}

fn way() -> impl Strategy<Value = PacketDirection> {
    prop_oneof![Just(PacketDirection::ToResponder), Just(PacketDirection::ToRequester)]
}

fn op() -> impl Strategy<Value = ConnectionOp> {
    use ConnectionOp::*;
    prop_oneof![
        6 => draft().prop_map(Post),
        3 => (0..4u8).prop_map(Receives),
        8 => (0..9u8).prop_map(Transmit),
        6 => (0..9u8).prop_map(Respond),
        16 => way().prop_map(|way| Deliver(way, 0)),
        4 => (way(), 0..9u8).prop_map(|(way, which)| Deliver(way, which)),
        2 => (way(), 0..9u8).prop_map(|(way, which)| Lose(way, which)),
        4 => (way(), 0..9u8, any::<bool>()).prop_map(|(way, which, is_marked)| {
            if is_marked { Mark(way, which) } else { Duplicate(way, which) }
        }),
        3 => (0..400u16).prop_map(Pass),
        2 => Just(Poll),
    ]
}

fn forged() -> impl Strategy<Value = Forged> {
    let payload = prop_oneof![0..3u16, Just(256), any::<u16>()];
    let length = prop_oneof![0..9u32, Just(256), 0..3000u32, any::<u32>()];
    (any::<u8>(), -9..9i8, any::<u8>(), payload, length, 0..5000u16, any::<u8>()).prop_map(
        |(opcode, ahead, syndrome, payload, length, offset, flags)| Forged {
            opcode,
            ahead,
            syndrome,
            payload,
            length,
            offset,
            flags,
        },
    )
}

proptest! {
    #[test]
    fn any_history_ends_as_the_model(
        params in params(), ops in proptest::collection::vec(op(), 0..300),
    ) {
        let mut connection = CheckedConnection::new(params);
        ops.into_iter().for_each(|op| connection.apply(op));
        connection.settle();
    }

    #[test]
    fn no_packet_breaks_an_invariant(
        params in params(),
        ops in proptest::collection::vec(
            prop_oneof![
                3 => op(),
                1 => (way(), forged()).prop_map(|(way, forged)| ConnectionOp::Forge(way, forged)),
            ],
            0..300,
        ),
    ) {
        let mut connection = CheckedConnection::new(params);
        ops.into_iter().for_each(|op| connection.apply(op));
        connection.settle();
    }
}

#[test]
fn the_same_seed_is_the_same_run() {
    let faults = FaultRates { loss: 20, ..FaultRates::default() };
    let packets: Vec<u64> = [1, 1, 2].map(|seed| random_run(seed, faults, 60)).into();
    assert_eq!(packets[0], packets[1]);
    assert_ne!(packets[0], packets[2]);
}
