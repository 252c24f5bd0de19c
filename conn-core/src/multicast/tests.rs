use std::{println, vec::Vec};

use proptest::prelude::*;

use super::oracle::*;
use super::*;
use crate::exhaustive::{CheckedMachine, every_history};

mod torn;
mod withheld;

fn config(members: u8, window: u32, policy: Policy) -> Config {
    Config {
        members,
        rank: Rank(0),
        senders: Members::first(members),
        window,
        max_message: 40,
        capacity: Config::capacity_for(window, 40),
        is_mirrored: members.is_multiple_of(2),
        policy,
        deadline_ns: 150_000,
        health_ns: 1 << 40,
        suspect_ns: 1 << 41,
    }
}

fn policy(window: u32) -> impl Strategy<Value = Policy> {
    prop_oneof![
        (1..=window).prop_map(Policy::Every),
        Just(Policy::Every(1)),
        Just(Policy::Opportunistic),
        Just(Policy::OpportunisticWithNulls),
    ]
}

fn traffic() -> BoxedStrategy<GroupOp> {
    let any_member = || 0..8u8;
    prop_oneof![
        8 => (any_member(), any::<u8>()).prop_map(|(by, len)| GroupOp::Send(by, len)),
        1 => (any_member(), any::<u8>()).prop_map(|(by, len)| GroupOp::Waste(by, len)),
        1 => any_member().prop_map(GroupOp::Flush),
        8 => (any_member(), 0..100u8).prop_map(|(by, after)| GroupOp::Poll(by, after)),
        12 => (any_member(), any_member(), 0..9u8).prop_map(|(a, b, n)| GroupOp::Land(a, b, n)),
        6 => (any_member(), any_member(), any::<u8>())
            .prop_map(|(a, b, c)| GroupOp::Begin(a, b, c)),
    ]
    .boxed()
}

/// Operations that end a member, and those by which peers notice.
fn endings() -> BoxedStrategy<GroupOp> {
    let any_member = || 0..8u8;
    prop_oneof![
        1 => any_member().prop_map(GroupOp::End),
        1 => any_member().prop_map(GroupOp::Leave),
        1 => (any_member(), 0..9u8).prop_map(|(by, keep)| GroupOp::Crash(by, keep)),
        3 => (any_member(), any_member()).prop_map(|(by, of)| GroupOp::Notice(by, of)),
    ]
    .boxed()
}

fn failures() -> BoxedStrategy<GroupOp> {
    prop_oneof![60 => traffic(), 6 => endings()].boxed()
}

fn errors() -> BoxedStrategy<GroupOp> {
    prop_oneof![60 => traffic(), 1 => (0..8u8).prop_map(GroupOp::Accuse)].boxed()
}

fn withholding() -> BoxedStrategy<GroupOp> {
    let what = prop_oneof![
        Just(Withheld::Wedged),
        Just(Withheld::Suspected),
        any::<u8>().prop_map(Withheld::Turns),
        Just(Withheld::Repairs),
        Just(Withheld::Received),
        Just(Withheld::Finished),
    ];
    prop_oneof![
        60 => traffic(),
        5 => endings(),
        3 => (0..8u8, what).prop_map(|(by, what)| GroupOp::Withhold(by, what)),
    ]
    .boxed()
}

fn run(mut group: CheckedGroup, ops: Vec<GroupOp>) -> CheckedGroup {
    ops.into_iter().for_each(|op| group.apply(op));
    group.settle();
    group
}

proptest! {
    #[test]
    fn all_members_deliver_all_messages_in_one_order(
        members in 2..=8u8, (window, policy) in (1..12u32).prop_flat_map(|w| (Just(w), policy(w))),
        senders in 1..256u64, ops in proptest::collection::vec(traffic(), 0..400),
    ) {
        let senders = Members::from_bits(senders & Members::first(members).bits()).with(Rank(0));
        run(CheckedGroup::new(Config { senders, ..config(members, window, policy) }), ops);
    }

    #[test]
    fn survivors_end_with_the_same_sequence(
        members in 2..=8u8, (window, policy) in (1..12u32).prop_flat_map(|w| (Just(w), policy(w))),
        ops in proptest::collection::vec(failures(), 0..400),
    ) {
        run(CheckedGroup::new(config(members, window, policy)), ops);
    }

    #[test]
    fn a_member_given_up_by_mistake_delivers_nothing_else(
        members in 3..=8u8, (window, policy) in (1..12u32).prop_flat_map(|w| (Just(w), policy(w))),
        ops in proptest::collection::vec(errors(), 0..400),
    ) {
        run(CheckedGroup::new(config(members, window, policy)), ops);
    }

    #[test]
    fn a_withholding_member_is_cut_off_and_the_others_agree_in_time(
        members in 3..=8u8, (window, policy) in (1..12u32).prop_flat_map(|w| (Just(w), policy(w))),
        ops in proptest::collection::vec(withholding(), 0..400),
    ) {
        let (health_ns, suspect_ns) = (1 << 28, 1 << 32);
        let config = Config { health_ns, suspect_ns, ..config(members, window, policy) };
        let mut group = CheckedGroup::new(config);
        ops.into_iter().for_each(|op| group.apply(op));
        group.settle_in_time();
    }
}

#[test]
fn every_short_history_of_two_ends_well() {
    let alphabet = [
        GroupOp::Send(0, 9),
        GroupOp::Send(1, 40),
        GroupOp::Poll(0, 0),
        GroupOp::Poll(1, 200),
        GroupOp::Land(0, 1, 1),
        GroupOp::Land(1, 0, 2),
        GroupOp::Begin(0, 1, 133),
        GroupOp::Crash(1, 1),
        GroupOp::Notice(0, 1),
    ];
    let mut histories = 0;
    for policy in [Policy::Every(1), Policy::Every(2), Policy::OpportunisticWithNulls] {
        histories +=
            every_history(&SettlingGroup(CheckedGroup::new(config(2, 2, policy))), &alphabet, 4);
    }
    println!("multicast: {histories} histories");
    assert!(histories > 12_000);
}

/// After every operation, a copy of the group is brought to its end.
#[derive(Clone)]
struct SettlingGroup(CheckedGroup);

impl CheckedMachine for SettlingGroup {
    type Op = GroupOp;

    fn apply(&mut self, op: GroupOp) {
        self.0.apply(op);
        self.0.clone().settle();
    }
}

/// Lets everything arrive at once, `passes` times around.
fn round(group: &mut CheckedGroup, members: u8, after_us: u8) {
    for by in 0..members {
        group.apply(GroupOp::Poll(by, after_us));
        for to in 0..members {
            group.apply(GroupOp::Land(by, to, 255));
        }
    }
}

#[test]
fn an_unbatched_multicast_takes_the_writes_of_the_formula() {
    for members in 2..=8 {
        let mut group = CheckedGroup::new(config(members, 100, Policy::Every(1)));
        for batch in [1u8, 3, 20] {
            let before = group.writes;
            for message in 0..batch {
                group.apply(GroupOp::Send(message, 30)); // by turns, so that each is delivered
            }
            (0..4).for_each(|_| round(&mut group, members, 0));
            let expected = u64::from(writes_per_multicast(members)) * u64::from(batch);
            assert_eq!(group.writes - before, expected, "{members} members, {batch} messages");
            assert_eq!(group.pushed_turns(0), group.machine(0).sent_turns(), "none is inhibited");
        }
    }
}

#[test]
fn a_batch_takes_as_many_writes_as_one_multicast() {
    for (members, k) in [(2, 25), (3, 25), (3, 250), (5, 25), (8, 250)] {
        let senders = Members::first(1);
        let mut group =
            CheckedGroup::new(Config { senders, ..config(members, 1000, Policy::Every(k)) });
        let messages = 20_000;
        for _ in 0..messages / k {
            (0..k).for_each(|_| group.apply(GroupOp::Send(0, 40)));
            (0..3).for_each(|_| round(&mut group, members, 0));
        }
        assert_eq!(group.delivered(members - 1), messages as usize);
        let most = 1.1 * f64::from(writes_per_multicast(members)) / f64::from(k);
        let per_message = group.writes as f64 / f64::from(messages);
        assert!(per_message <= most, "{members} members, k = {k}: {per_message} > {most}");
    }
}

#[test]
fn a_lone_message_waits_for_one_deadline_and_no_more() {
    let mut group = CheckedGroup::new(config(3, 100, Policy::Every(100)));
    let senders = Members::first(1);
    let mut one = CheckedGroup::new(Config { senders, ..config(3, 100, Policy::Every(100)) });
    one.apply(GroupOp::Send(0, 10));
    round(&mut one, 3, 0);
    round(&mut one, 3, 0);
    assert_eq!((one.delivered(0), one.writes), (0, 0), "inhibited");
    assert_eq!(one.pushed_turns(0), 0);
    one.apply(GroupOp::Poll(0, 150)); // the deadline
    assert_eq!(one.pushed_turns(0), 1);
    (0..3).for_each(|_| round(&mut one, 3, 0));
    assert_eq!([0, 1, 2].map(|by| one.delivered(by)), [1; 3]);
    // A forced push urges all members to acknowledge it.
    assert_eq!([0, 1, 2].map(|by| one.machine(by).counts().forced), [1, 0, 0]);
    // A flush does not wait.
    group = {
        group.apply(GroupOp::Send(0, 10));
        group
    };
    (0..3).for_each(|by| group.apply(GroupOp::Flush(by)));
    (0..4).for_each(|_| round(&mut group, 3, 0));
    assert_eq!([0, 1, 2].map(|by| group.delivered(by)), [1; 3]);
}

#[test]
fn an_acknowledgement_waits_for_one_deadline_and_no_more() {
    let mut member = Member::new(config(3, 4, Policy::Every(2)), 0).expect("a group");
    let mut words = [0; ROW_WORDS];
    Row { health: 1, sent: 16, ..Row::default() }.store(3, Words::whole(3), &mut words);
    member.on_row(Rank(1), 0, |at| words[usize::from(at)]);
    while member.next_copy().is_some() {}
    let word = |_, at| header(Record::Message(8), at);
    assert_eq!((member.next_push(7, word), member.wants_ns()), (None, 150_007));
    assert_eq!((member.next_push(150_006, word), member.counts().forced), (None, 0));
    let push = member.next_push(150_007, word).expect("the deadline has passed");
    assert_eq!((push.write, member.counts().forced), (Write::Row(Words::received(3)), 1));
    assert_eq!(member.next_push(150_007, word), None);
}

#[test]
fn nulls_take_the_turns_of_members_with_nothing_to_send() {
    let mut group = CheckedGroup::new(config(3, 100, Policy::OpportunisticWithNulls));
    for message in 0..10 {
        group.apply(GroupOp::Send(2, message));
    }
    (0..6).for_each(|_| round(&mut group, 3, 0));
    assert_eq!([0, 1, 2].map(|by| group.delivered(by)), [10; 3]);
    let before = group.writes;
    (0..3).for_each(|_| round(&mut group, 3, 0));
    assert_eq!(group.writes, before, "nulls are not answered by nulls");
}

#[test]
fn terms_and_cards_come_out_as_they_went_in() {
    for policy in [Policy::Every(3), Policy::Opportunistic, Policy::OpportunisticWithNulls] {
        let terms = Terms(Config { rank: Rank(2), ..config(4, 8, policy) });
        assert_eq!(Terms::decode(&terms.encode()), Ok(terms));
    }
    let place = |at: u64| Place { addr: at << 30, len: at, rkey: at as u32 };
    let contact = |at: u32| Contact {
        qp_num: at,
        psn: at + 1,
        rows: place(at.into()),
        slots: place(u64::from(at) + 7),
    };
    let mut contacts = [Contact::default(); MAX_MEMBERS];
    contacts.iter_mut().zip(1..).take(5).for_each(|(to, at)| *to = contact(at));
    let info =
        MemberInfo { rank: Rank(1), members: 5, lid: 3, mtu_bytes: 4096, gid: [9; 16], contacts };
    let mut bytes = [0; MAX_MEMBER_INFO_BYTES];
    let len = info.encode(&mut bytes);
    assert_eq!(MemberInfo::decode(&bytes[..len], Rank(1), 5), Ok(info));
    assert_eq!(MemberInfo::decode(&bytes[..len], Rank(2), 5), Err(MemberInfoError::Stranger));
    let short = MemberInfoError::Length { found: len - 1, expected: len };
    assert_eq!(MemberInfo::decode(&bytes[..len - 1], Rank(1), 5), Err(short));
    bytes[27] = 1; // a queue pair number of 25 bits
    assert_eq!(
        MemberInfo::decode(&bytes[..len], Rank(1), 5),
        Err(MemberInfoError::Contact(Rank(0)))
    );
}

#[test]
fn terms_have_these_bytes() {
    let terms = Terms(Config {
        members: 4,
        rank: Rank(2),
        senders: Members::from_bits(0b1011),
        window: 0x0102,
        max_message: 0x20,
        capacity: 0x4000,
        is_mirrored: true,
        policy: Policy::Every(3),
        deadline_ns: 0x0102_0304_0506_0708,
        health_ns: 0x1112_1314_1516_1718,
        suspect_ns: 0x2122_2324_2526_2728,
    });
    let bytes = [
        [2, 4, 2, 1, 0b1011, 0, 0, 0],
        [0, 0, 0, 0, 2, 1, 0, 0],
        [0x20, 0, 0, 0, 3, 0, 0, 0],
        [0, 0x40, 0, 0, 0, 0, 0, 0],
        [8, 7, 6, 5, 4, 3, 2, 1],
        [0x18, 0x17, 0x16, 0x15, 0x14, 0x13, 0x12, 0x11],
        [0x28, 0x27, 0x26, 0x25, 0x24, 0x23, 0x22, 0x21],
    ];
    assert_eq!(terms.encode(), bytes.as_flattened());
    assert_eq!(Terms::decode(bytes.as_flattened()), Ok(terms));
}

#[test]
fn a_member_info_has_these_bytes() {
    let mut contacts = [Contact::default(); MAX_MEMBERS];
    contacts[0] = Contact {
        qp_num: 0x0001_0203,
        psn: 0x0004_0506,
        rows: Place { addr: 0x1112_1314_1516_1718, len: 0x2000, rkey: 0x2122_2324 },
        slots: Place { addr: 0x3132_3334_3536_3738, len: 0x4000, rkey: 0x4142_4344 },
    };
    let gid = *b"0123456789abcdef";
    let info =
        MemberInfo { rank: Rank(1), members: 2, lid: 0x0304, mtu_bytes: 4096, gid, contacts };
    let expected = [
        &[1, 2, 4, 3, 0, 0x10, 0, 0][..],
        &gid,
        &[3, 2, 1, 0, 6, 5, 4, 0],
        &[0x18, 0x17, 0x16, 0x15, 0x14, 0x13, 0x12, 0x11],
        &[0, 0x20, 0, 0, 0, 0, 0, 0, 0x24, 0x23, 0x22, 0x21],
        &[0x38, 0x37, 0x36, 0x35, 0x34, 0x33, 0x32, 0x31],
        &[0, 0x40, 0, 0, 0, 0, 0, 0, 0x44, 0x43, 0x42, 0x41],
        &[0; 8 + 56],
    ]
    .concat();
    let mut bytes = [0; MAX_MEMBER_INFO_BYTES];
    let len = info.encode(&mut bytes);
    assert_eq!(bytes[..len], expected);
    assert_eq!(MemberInfo::decode(&expected, Rank(1), 2), Ok(info));
}

/// A member is suspected for each invalid value that it writes, with the reason.
#[test]
fn a_member_that_lies_is_cut_off_with_the_reason() {
    let base = config(3, 4, Policy::Opportunistic);
    let shows = |member: &mut Member, row: &Row| {
        let mut words = [0; ROW_WORDS];
        row.store(3, Words::whole(3), &mut words);
        member.on_row(Rank(1), 0, |at| words[usize::from(at)]);
    };
    let says = |change: fn(&mut Row)| {
        let mut member = Member::new(base, 0).expect("a group");
        let mut row = Row { health: 1, ..Row::default() };
        shows(&mut member, &row);
        change(&mut row);
        shows(&mut member, &row);
        (member.reason(Rank(1)), member.reason(Rank(2)))
    };
    let lied = |lie| (Some(Reason::Lied(lie)), None);
    assert_eq!(says(|_| {}), (None, None));
    assert_eq!(says(|row| row.health = 0), lied(Lie::Backwards));
    assert_eq!(says(|row| row.sent = 1 << 20), lied(Lie::BeyondWindow));
    assert_eq!(says(|row| row.sent = 4), lied(Lie::BeyondWindow));
    assert_eq!(says(|row| row.received[0] = 1), lied(Lie::NotSent));
    assert_eq!(says(|row| row.received[2] = 5), lied(Lie::NotSent));
    assert_eq!(says(|row| row.suspected = Members::first(8)), lied(Lie::NoMember));
    let slots = |word: u64, sent: u64| {
        let mut member = Member::new(base, 0).expect("a group");
        shows(&mut member, &Row { sent, ..Row::default() });
        while member.next_copy().is_some() {}
        while member.next_push(0, |_, _| word).is_some() {}
        member.reason(Rank(1))
    };
    let is = |lie| Some(Reason::Lied(lie));
    assert_eq!(slots(header(Record::Message(8), 0), 16), None);
    assert_eq!(slots(header(Record::Message(41), 0), 16), is(Lie::TooLong { claimed: 41 }));
    assert_eq!(slots(header(Record::Message(40), 0), 16), is(Lie::PartOfRecord));
    assert_eq!(slots(header(Record::Message(8), 8), 16), is(Lie::NoRecord));
    assert_eq!(slots(header(Record::Nulls(5), 0), 8), is(Lie::NoRecord));
}
