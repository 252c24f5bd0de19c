//! Whatever rows, slots and repairs the other members write: it is refused or delivered, and
//! never more is looked at than was copied.
#![no_main]

use arbitrary::Arbitrary;
use conn_core::checksum::checksum_of;
use conn_core::multicast::{
    Config, Member, Members, Policy, ROW_WORDS, Rank, RepairHeader, Status, Words,
};
use libfuzzer_sys::fuzz_target;

#[derive(Arbitrary, Debug)]
enum RowLie {
    /// A word of a member's row becomes this, and the row gets its checksums; small numbers are the
    /// likely ones.
    Word(u8, u8, u16),
    /// Any value.
    Wild(u8, u8, u64),
    /// A word of a member's row, perhaps a checksum; the checksums stay.
    Torn(u8, u8, u64),
    /// A word of a member's slots.
    Slot(u8, u8, u64),
    /// A good header of a message at a place of a member's slots.
    Message(u8, u8, u8),
    /// The header of a member's repair area.
    Repair(u8, u8, u16, u16, u8),
    /// A word of that header, perhaps its checksum; the checksum stays.
    TornRepair(u8, u8, u64),
    /// Some time passes.
    Pass(u16),
}

const MEMBERS: u8 = 3;
const CAPACITY: u64 = 512;
const SUSPECT_NS: u64 = 1_000_000;
/// Passes in that time.
const PARTS: u64 = 16;

/// Writes the checksum of each group, as a member does that writes whole groups.
fn write_checksums(row: &mut [u64; ROW_WORDS]) {
    for group in Words::groups(MEMBERS) {
        let (first, last) = (usize::from(group.first), usize::from(group.checksum()));
        row[last] = checksum_of(&row[first..last]);
    }
}

fuzz_target!(|lies: Vec<RowLie>| {
    let config = Config {
        members: MEMBERS,
        rank: Rank(0),
        senders: Members::from_bits(0b110),
        window: 8,
        max_message: 40,
        capacity: CAPACITY,
        is_mirrored: false,
        policy: Policy::Every(3),
        deadline_ns: 1000,
        health_ns: 100_000,
        suspect_ns: SUSPECT_NS,
    };
    let mut member = Member::new(config, 0).unwrap();
    let mut memory = GroupMemory {
        rows: [[0; ROW_WORDS]; MEMBERS as usize],
        rings: [[0; (CAPACITY / 8) as usize]; MEMBERS as usize],
        private: [[0; (CAPACITY / 8) as usize]; MEMBERS as usize],
        areas: [[0; RepairHeader::WORDS as usize]; MEMBERS as usize],
    };
    let mut now = 0;
    let words = usize::from(Words::whole(MEMBERS).count);
    let who = |by: u8| usize::from(1 + by % (MEMBERS - 1));
    for lie in lies.into_iter().take(300) {
        let GroupMemory { rows, rings, areas, .. } = &mut memory;
        match lie {
            RowLie::Word(by, at, value) => {
                rows[who(by)][usize::from(at) % words] = value.into();
                write_checksums(&mut rows[who(by)]);
            }
            RowLie::Wild(by, at, value) => {
                rows[who(by)][usize::from(at) % words] = value;
                write_checksums(&mut rows[who(by)]);
            }
            RowLie::Torn(by, at, value) => rows[who(by)][usize::from(at) % words] = value,
            RowLie::Slot(by, at, value) => rings[who(by)][usize::from(at) % rings[0].len()] = value,
            RowLie::Message(by, at, len) => {
                let at = u64::from(at) * 8;
                let record = conn_core::multicast::Record::Message(u32::from(len) % 48);
                let word = conn_core::multicast::header(record, at);
                rings[who(by)][(at % CAPACITY / 8) as usize] = word;
            }
            RowLie::Repair(by, of, position, len, number) => {
                let header = RepairHeader {
                    of: Rank(of),
                    position: u64::from(position) * 8,
                    len: u64::from(len) * 8,
                    turns: u64::from(number % 16),
                    number: number.into(),
                    suspected: member.suspected(),
                };
                areas[who(by)] = header.words();
            }
            RowLie::TornRepair(by, at, value) => {
                areas[who(by)][usize::from(at) % areas[0].len()] = value
            }
            RowLie::Pass(after) => now += u64::from(after),
        }
        pass(&mut member, &mut memory, now);
    }
    // A failure (a finished member may go) ends, whatever the other member withholds while it
    // lives.
    member.unreachable(Rank(1));
    for _ in 0..2 * u64::from(MEMBERS) * PARTS {
        now += SUSPECT_NS / PARTS;
        let health = &mut memory.rows[2][usize::from(MEMBERS)];
        *health = health.saturating_add(1);
        write_checksums(&mut memory.rows[2]);
        pass(&mut member, &mut memory, now);
    }
    let has_ended = !matches!(member.status(), Status::Open | Status::Failing);
    let has_failed = !member.suspected().is_empty();
    assert!(has_ended || !has_failed, "{:?}", member.reason(Rank(2)));
});

/// Memory that the members write, and what was copied from it.
struct GroupMemory {
    rows: [[u64; ROW_WORDS]; MEMBERS as usize],
    rings: [[u64; (CAPACITY / 8) as usize]; MEMBERS as usize],
    private: [[u64; (CAPACITY / 8) as usize]; MEMBERS as usize],
    areas: [[u64; RepairHeader::WORDS as usize]; MEMBERS as usize],
}

/// The drive loop, once.
fn pass(member: &mut Member, memory: &mut GroupMemory, now: u64) {
    let GroupMemory { rows, rings, private, areas } = memory;
    for from in member.reachable().iter() {
        member.on_row(from, now, |at| rows[from.index()][usize::from(at)]);
    }
    member.on_tail(0, now);
    while let Some(copy) = member.next_copy() {
        let range = copy.span.range();
        let words = range.start / 8..range.end / 8;
        private[copy.of.index()][words.clone()].copy_from_slice(&rings[copy.of.index()][words]);
    }
    let area = |from: Rank, word: u8| areas[from.index()][usize::from(word)];
    while let Some(copy) = member.next_repair(area) {
        assert!(copy.at + copy.span.len <= member.config().repair_bytes());
        assert!(copy.span.range().end <= CAPACITY as usize);
    }
    let header = |of: Rank, at: u64| private[of.index()][(at / 8) as usize];
    let mut pushes = 0;
    while member.next_push(now, header).is_some() {
        pushes += 1;
        assert!(pushes < 1000, "pushes without end");
    }
    while let Some(delivery) = member.next_delivery(header) {
        assert!(delivery.span.len <= 40 && delivery.span.offset <= CAPACITY);
    }
}
