//! Members that live, and hold up the agreement of the survivors.

use super::*;

/// A member 0 of four that suspects member 3, and has said so; it has received two messages
/// of it.
fn member() -> Member {
    let mut member = Member::new(config(4, 4, Policy::Opportunistic), 0).expect("a group");
    let ring = [header(Record::Message(8), 0), 0, header(Record::Message(8), 16), 0];
    let word = |_, at: u64| ring[at as usize / 8];
    shows(&mut member, 3, Row { health: 1, sent: 32, ..Row::default() });
    while member.next_copy().is_some() {}
    while member.next_push(0, word).is_some() {}
    member.unreachable(Rank(3));
    while member.next_push(0, word).is_some() {}
    assert_eq!(member.row.received[3], 2);
    member
}

fn shows(member: &mut Member, from: u8, row: Row) {
    let mut words = [0; ROW_WORDS];
    row.store(4, Words::whole(4), &mut words);
    member.on_row(Rank(from), 0, |at| words[usize::from(at)]);
}

/// The row of a member that agrees, with `turns` turns of member 3.
fn agreeing(turns: u64) -> Row {
    let suspects = Members::NONE.with(Rank(3));
    let mut row = Row { health: 1, suspected: suspects, wedged: suspects, ..Row::default() };
    row.received[3] = turns;
    row
}

#[test]
fn counters_are_final_when_all_agree() {
    let told = |second: Row, then: fn(&mut Row)| {
        let mut member = member();
        shows(&mut member, 2, second);
        let mut row = agreeing(0);
        shows(&mut member, 1, row);
        row.health = 2;
        then(&mut row);
        shows(&mut member, 1, row);
        member.reason(Rank(1))
    };
    let lied = |lie| Some(Reason::Lied(lie));
    assert_eq!(told(agreeing(1), |row| row.received[3] = 2), None, "it was repaired");
    assert_eq!(told(agreeing(1), |row| row.received[3] = 3), lied(Lie::NotSent));
    assert_eq!(told(agreeing(4), |row| row.received[3] = 3), None, "another survivor has more");
    let apart = Row { wedged: Members::NONE, ..agreeing(1) };
    assert_eq!(told(apart, |row| row.received[3] = 3), None, "not all agree");
    assert_eq!(told(agreeing(1), |row| row.sent = 16), lied(Lie::BehindEnd));
    assert_eq!(told(agreeing(1), |row| row.goodbye = 1), lied(Lie::Unfinished));
    assert_eq!(told(agreeing(1), |row| (row.received[3], row.goodbye) = (2, 1)), None);
    assert_eq!(told(agreeing(3), |row| row.goodbye = 1), lied(Lie::Unfinished), "this one has 2");
}

/// Returns the reasons why members 1 and 2, which show these rows, are suspected when time is over.
fn suspected_after(rows: [Row; 2]) -> [Option<Reason>; 2] {
    let mut member = member();
    for (from, row) in (1..).zip(rows) {
        shows(&mut member, from, row);
    }
    while member.next_push(0, |_, at| header(Record::Message(8), at)).is_some() {}
    let suspect_ns = member.config().suspect_ns;
    member.on_tail(0, 1); // from here on
    // They live.
    for (from, mut row) in (1..).zip(rows) {
        row.health += 1;
        let mut words = [0; ROW_WORDS];
        row.store(4, Words::whole(4), &mut words);
        member.on_row(Rank(from), suspect_ns, |at| words[usize::from(at)]);
    }
    member.on_tail(0, suspect_ns);
    assert_eq!([1, 2].map(|rank| member.reason(Rank(rank))), [None; 2], "not yet");
    member.on_tail(0, suspect_ns + 1);
    [1, 2].map(|rank| member.reason(Rank(rank)))
}

#[test]
fn only_members_that_are_waited_for_are_suspected() {
    let withholds = Some(Reason::Withholds);
    let apart = Row { wedged: Members::NONE, ..agreeing(2) };
    assert_eq!(suspected_after([agreeing(2), agreeing(2)]), [None; 2], "it waits for no other");
    assert_eq!(suspected_after([agreeing(2), apart]), [None, withholds]);
    let silent = Row { suspected: Members::NONE, ..agreeing(2) };
    assert_eq!(suspected_after([silent, agreeing(2)]), [withholds, None]);
    assert_eq!(suspected_after([apart, apart]), [withholds; 2]);
    // Member 2 claims a turn that no other member has, and does not repair the others.
    assert_eq!(suspected_after([agreeing(2), agreeing(3)]), [None, withholds]);
    // This member repairs member 1, which takes nothing.
    assert_eq!(suspected_after([agreeing(0), agreeing(2)]), [withholds, None]);
}

#[test]
fn a_member_that_finishes_without_a_stream_end_is_suspected() {
    let reason_after = |records: &[Record], waited: u64| {
        let mut member = Member::new(config(2, 4, Policy::Opportunistic), 0).expect("a group");
        let mut ring = [0; 8];
        let sent = records.iter().fold(0, |at, record| {
            ring[at as usize / 8] = header(*record, at);
            at + record.bytes()
        });
        let mut words = [0; ROW_WORDS];
        let row = Row { health: 1, sent, goodbye: row::FINISHED, ..Row::default() };
        row.store(2, Words::whole(2), &mut words);
        // The suspicion does not begin with the last sign of life, but with the goodbye.
        let finished_ns = 10 * member.config().suspect_ns;
        member.on_row(Rank(1), finished_ns, |at| words[usize::from(at)]);
        member.on_tail(0, finished_ns);
        assert_eq!(member.reason(Rank(1)), None, "what has arrived is not accepted yet");
        while member.next_copy().is_some() {}
        while member.next_push(finished_ns, |_, at| ring[at as usize / 8]).is_some() {}
        member.on_tail(0, finished_ns + waited);
        member.reason(Rank(1))
    };
    let suspect_ns = config(2, 4, Policy::Opportunistic).suspect_ns;
    let lied = Some(Reason::Lied(Lie::NoEnd));
    assert_eq!(reason_after(&[], suspect_ns), lied);
    assert_eq!(reason_after(&[Record::Flush], suspect_ns), lied);
    assert_eq!(reason_after(&[], suspect_ns - 1), None, "there is time");
    assert_eq!(reason_after(&[Record::End], suspect_ns), None);
}

#[test]
fn a_finished_member_accuses_none() {
    let mut member = Member::new(config(3, 4, Policy::Opportunistic), 0).expect("a group");
    let end = [header(Record::End, 0)];
    let ring = |_: Rank, at: u64| end[at as usize / 8];
    for from in [1, 2] {
        let mut words = [0; ROW_WORDS];
        let row = Row { health: 1, sent: Record::End.bytes(), ..Row::default() };
        row.store(3, Words::whole(3), &mut words);
        member.on_row(Rank(from), 0, |at| words[usize::from(at)]);
    }
    member.on_tail(Record::End.bytes(), 0);
    while member.next_copy().is_some() {}
    while member.next_push(0, ring).is_some() {}
    assert_eq!(member.next_delivery(ring), None);
    assert_eq!(member.status(), Status::Finished);
    member.unreachable(Rank(2));
    assert_eq!(member.row.suspected, Members::NONE);
    let mut goodbyes = 0;
    while let Some(push) = member.next_push(0, ring) {
        assert_eq!(push.to, Members::NONE.with(Rank(1)), "and writes nothing more to it");
        goodbyes += u64::from(member.has_said_goodbye());
    }
    assert!(goodbyes > 0);
}
