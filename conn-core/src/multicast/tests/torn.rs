//! Words that are looked at while they are being written.

use super::*;

/// Member 0 of three; it can see the other two.
fn member() -> Member {
    Member::new(config(3, 4, Policy::Opportunistic), 0).expect("a group")
}

fn checksummed(row: &Row) -> [u64; ROW_WORDS] {
    let mut words = [0; ROW_WORDS];
    row.store(3, Words::whole(3), &mut words);
    words
}

fn shows(member: &mut Member, from: u8, words: &[u64; ROW_WORDS]) {
    shows_at(member, from, 7, words);
}

fn shows_at(member: &mut Member, from: u8, now_ns: u64, words: &[u64; ROW_WORDS]) {
    member.on_row(Rank(from), now_ns, |at| words[usize::from(at)]);
}

/// A counter goes from 0x1f8 to 0x250; only its lower byte has arrived: it seems to go backwards.
#[test]
fn a_counter_that_is_half_there_is_no_lie() {
    let (mut member, mut row) = (member(), Row { health: 0x1f8, ..Row::default() });
    shows(&mut member, 1, &checksummed(&row));
    row.health = 0x250;
    let (whole, mut half) = (checksummed(&row), checksummed(&row));
    for (health, checksum) in [(0x150, true), (0x2f8, true), (0x250, false), (0x1f8, true)] {
        half[3] = health;
        half[4] = if checksum { whole[4] } else { whole[4] ^ 1 };
        shows_at(&mut member, 1, 8, &half);
        assert_eq!((member.rows[1].health, member.reason(Rank(1))), (0x1f8, None));
        assert_eq!(member.agreement.heard_ns[1], 7, "as silent as a member that writes nothing");
    }
    shows(&mut member, 1, &whole);
    assert_eq!((member.rows[1].health, member.reason(Rank(1))), (0x250, None));
    row.health = 0x150;
    shows(&mut member, 1, &checksummed(&row));
    assert_eq!(member.reason(Rank(1)), Some(Reason::Lied(Lie::Backwards)));
}

/// A set of suspects is written behind the counters that it makes final: with older ones, it would
/// not be true.
#[test]
fn suspects_are_not_taken_without_the_counters_before_them() {
    let mut member = member();
    member.unreachable(Rank(2));
    let suspects = Members::NONE.with(Rank(2));
    let row = Row { received: [0; 16], suspected: suspects, wedged: suspects, ..Row::default() };
    let mut words = checksummed(&Row { health: 1, ..row });
    let health = core::mem::replace(&mut words[3], 2);
    shows(&mut member, 1, &words);
    assert_eq!(member.rows[1].wedged, Members::NONE);
    words[3] = health;
    shows(&mut member, 1, &words);
    assert_eq!((member.rows[1].wedged, member.rows[1].health), (suspects, 1));
}

/// A repair for fewer survivors is overwriting the last repair of an area.
#[test]
fn a_repair_is_taken_only_complete_and_for_the_same_survivors() {
    let mut member = Member::new(config(4, 4, Policy::Opportunistic), 0).expect("a group");
    member.unreachable(Rank(3));
    while member.next_push(0, |_, _| 0).is_some() {}
    let suspects = Members::NONE.with(Rank(3));
    let says = |repairs| Row { repairs, suspected: suspects, wedged: suspects, ..Row::default() };
    let takes = |repairs, header: RepairHeader, torn: u64| {
        let mut member = member.clone();
        for (from, repairs) in [(1, repairs), (2, 0)] {
            let mut words = [0; ROW_WORDS];
            says(repairs).store(4, Words::whole(4), &mut words);
            shows(&mut member, from, &words);
        }
        let mut area = header.words();
        area[1] ^= torn;
        let copy = member.next_repair(|_, word| area[usize::from(word)]);
        assert_eq!(member.suspected(), suspects);
        copy.map(|copy| copy.span.len)
    };
    let header = RepairHeader {
        of: Rank(3),
        position: 0,
        len: 16,
        turns: 0,
        number: 2,
        suspected: suspects,
    };
    assert_eq!(takes(2, header, 0), Some(16));
    assert_eq!(takes(2, header, 8), None, "half there");
    assert_eq!(takes(1, header, 0), None, "not complete");
    assert_eq!(takes(3, header, 0), None, "an earlier one");
    let fewer = suspects.with(Rank(2));
    assert_eq!(takes(2, RepairHeader { suspected: fewer, ..header }, 0), None, "for others");
}

/// Its health counter moves, but its control group never fits the checksum: it is suspected after
/// the same time as a member that stands still.
#[test]
fn a_group_that_never_fits_is_silence() {
    let suspect_ns = member().config().suspect_ns;
    let looks = |member: &mut Member, torn: u64, health: u64, now_ns: u64| {
        let mut words = checksummed(&Row { health, ..Row::default() });
        words[usize::from(Words::groups(3)[2].checksum())] ^= torn;
        shows_at(member, 1, now_ns, &words);
        // The other one is as it should be.
        shows_at(member, 2, now_ns, &checksummed(&Row { health, ..Row::default() }));
        member.on_tail(0, now_ns);
        (member.reason(Rank(1)), member.reason(Rank(2)))
    };
    let mut never = member();
    assert_eq!(looks(&mut never, 1, 1, 5), (None, None));
    assert_eq!(looks(&mut never, 1, 2, suspect_ns + 4), (None, None));
    let silent = (Some(Reason::StandsStill), None);
    assert_eq!(looks(&mut never, 1, 3, suspect_ns + 5), silent);
    // Once in between it fits.
    let mut late = member();
    for (at, torn) in [(5, 1), (6, 0), (7, 1), (suspect_ns + 6, 1)] {
        assert_eq!(looks(&mut late, torn, at, at), (None, None), "at {at}");
    }
    assert_eq!(looks(&mut late, 1, suspect_ns + 7, suspect_ns + 7), silent);
}
