use super::*;

/// The numbers of the thesis' table, in nanoseconds.
#[test]
fn costs_are_those_of_the_model() {
    let card = Card::named("connectx5", 1.0).unwrap();
    assert_eq!((card.post(1), card.post(8) / 8), (120, 15));
    assert_eq!((card.poll(0, 0), card.poll(1, 0), card.poll(32, 0) / 32), (0, 52, 17));
    assert_eq!((card.receive(1), card.receive(8) / 8), (16, 6));
    assert_eq!(Card::named("connectx5", 2.0).unwrap().post(1), 240);
    assert_eq!(Card::named("telepathy", 1.0), None);
}

#[test]
fn a_message_alone_takes_latency_and_its_acknowledgement() {
    let card = Card::named("connectx5", 1.0).unwrap();
    let (near, far) = (CardLink::default(), CardLink::default());
    // o_nic + L + o_nic; 3.4 µs from the post to the acknowledgement.
    assert_eq!(
        transit(&card, (&near, &far), (1000, 1000), LinkLoad::Fetched(1)),
        (1000 + 1940, 1000 + 3400)
    );
    assert_eq!(
        transit(&card, (&near, &far), (9000, 9000), LinkLoad::Inline(1)),
        (9000 + 1640, 9000 + 3100)
    );
}

#[test]
fn receives_that_are_shared_are_taken_one_after_another() {
    let card = Card::named("connectx5", 1.0).unwrap();
    let queue = SrqTimes::default();
    let taken = [33, 33, 32].map(|bytes| card.receive_shared(&queue, 0, 1000, bytes));
    assert_eq!(taken, [1500, 2000, 1000]);
}

#[test]
fn messages_follow_each_other_as_fast_as_the_link_is() {
    let card = Card::named("connectx5", 1.0).unwrap();
    let (near, far) = (CardLink::default(), CardLink::default());
    let arrivals: Vec<u64> = (0..100)
        .map(|_| transit(&card, (&near, &far), (0, 0), LinkLoad::Fetched(10_001)).0)
        .collect();
    // 20 ns and 840 for the bytes.
    assert!(arrivals.windows(2).all(|pair| pair[1] - pair[0] == 860), "{arrivals:?}");
    // Two senders share the link of the receiver.
    let (other, free) = (CardLink::default(), CardLink::default());
    let first = transit(&card, (&near, &free), (1_000_000, 1_000_000), LinkLoad::Fetched(10_001)).0;
    let second =
        transit(&card, (&other, &free), (1_000_000, 1_000_000), LinkLoad::Fetched(10_001)).0;
    assert_eq!(second - first, 860);
}

/// The requests of one queue pair stay behind each other, and those of another one go in
/// between.
#[test]
fn a_card_serves_other_queue_pairs_while_one_waits() {
    let card = Card::named("connectx5", 1.0).unwrap();
    let (near, far) = (CardLink::default(), CardLink::default());
    let list = || -> Vec<u64> {
        let request = |n: u64| transit(&card, (&near, &far), (0, n * 71), LinkLoad::Fetched(1)).0;
        (0..8).map(request).collect()
    };
    let (one, other) = (list(), list());
    // Both at the pace of a queue pair, and not one behind the other.
    assert_eq!([one[7], other[7]].map(|last| last - one[0]), [7 * 71, 7 * 71 + 20]);
    // With four, the card is the limit.
    let last = (0..2).map(|_| list()[7]).max().unwrap();
    assert_eq!(last - one[0], 31 * 20);
}

#[test]
fn the_data_of_a_read_come_out_of_the_other_card() {
    let card = Card::named("connectx5", 1.0).unwrap();
    let (near, far) = (CardLink::default(), CardLink::default());
    let (arrival, answer) = transit(&card, (&near, &far), (0, 0), LinkLoad::Answered(10_001));
    assert_eq!(arrival, 20 + 1900 + 20);
    assert_eq!(answer, arrival + 860 + 1900 + 20);
    // They delay no message of the requester's, which has its own way out, and none that leaves
    // the other card before them.
    let early = transit(&card, (&far, &near), (0, 0), LinkLoad::Fetched(1)).0;
    assert_eq!(early, 20 + 1900 + 20);
    // The data of another READ follow them.
    let (_, second) = transit(&card, (&near, &far), (0, 0), LinkLoad::Answered(10_001));
    assert_eq!(second - answer, 860);
    assert_eq!(
        transit(&card, (&near, &far), (40, 40), LinkLoad::Fetched(1)).0,
        40 + 20 + 1900 + 20
    );
}
