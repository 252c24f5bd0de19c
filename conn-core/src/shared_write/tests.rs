use std::{println, vec::Vec};

use proptest::prelude::*;

use super::oracle::*;
use super::terms::{TERMS_LEN, Terms, TermsError};
use super::*;
use crate::exhaustive::{CheckedMachine, every_history};
use crate::ring::offer::Place;

/// After every operation, copies of the ring are brought to rest, and to their end.
#[derive(Clone)]
struct SettlingSharedWrite(CheckedSharedWrite);

impl CheckedMachine for SettlingSharedWrite {
    type Op = SharedWriteOp;

    fn apply(&mut self, op: SharedWriteOp) {
        self.0.apply(op);
        self.0.clone().settle();
        self.0.clone().end();
    }
}

#[test]
fn every_short_history_agrees_with_the_model() {
    let mut histories = 0;
    for (extents, apart) in [(0, false), (1, true), (2, false)] {
        let params = SharedWriteParams { extents, links: 1, max_message: 15, apart };
        let mut begun = CheckedSharedWrite::new(params);
        for nth in [0, 1] {
            begun.apply(SharedWriteOp::Drive(nth));
            (0..5).for_each(|_| begun.apply(SharedWriteOp::Execute(nth)));
        }
        let first = [
            SharedWriteOp::Execute(0),
            SharedWriteOp::Drive(0),
            SharedWriteOp::Send(0, 15),
            SharedWriteOp::Look(0),
            SharedWriteOp::Execute(1),
            SharedWriteOp::Drive(1),
            SharedWriteOp::Begin(0, 140),
        ];
        histories += every_history(&begun, &first, 7);
        let ends = [
            SharedWriteOp::Execute(0),
            SharedWriteOp::Drive(0),
            SharedWriteOp::Drive(1),
            SharedWriteOp::Die(0),
            SharedWriteOp::Look(0),
            SharedWriteOp::Execute(1),
        ];
        histories += every_history(&SettlingSharedWrite(CheckedSharedWrite::new(params)), &ends, 6);
        let joins = [
            SharedWriteOp::Die(0),
            SharedWriteOp::Look(0),
            SharedWriteOp::Join(0),
            SharedWriteOp::Drive(0),
            SharedWriteOp::Execute(0),
            SharedWriteOp::Grant,
        ];
        histories += every_history(&SettlingSharedWrite(begun), &joins, 5);
    }
    println!("shared_write: {histories} histories");
    assert!(histories > 2_000_000);
}

/// Drives a sender as far as it can get alone.
fn goes_on(ring: &mut CheckedSharedWrite, nth: u8) {
    for _ in 0..3 {
        ring.apply(SharedWriteOp::Drive(nth));
        (0..8).for_each(|_| ring.apply(SharedWriteOp::Execute(nth)));
    }
}

fn two_senders(extents: u8) -> CheckedSharedWrite {
    CheckedSharedWrite::new(SharedWriteParams {
        extents: extents - 1,
        links: 1,
        max_message: 15,
        apart: false,
    })
}

#[test]
fn a_ticket_of_which_the_entry_was_not_read_keeps_its_extent() {
    let mut ring = two_senders(3);
    ring.apply(SharedWriteOp::Drive(0));
    (0..5).for_each(|_| ring.apply(SharedWriteOp::Execute(0))); // it has ticket 1, and sleeps
    for _ in 0..40 {
        goes_on(&mut ring, 1);
        ring.apply(SharedWriteOp::Send(1, 15));
        goes_on(&mut ring, 1);
        (0..3).for_each(|_| ring.apply(SharedWriteOp::Look(1)));
    }
    // Entries were used again several times: one ticket was passed over each time.
    assert!(ring.sent(1) >= 39, "{}", ring.sent(1));
    goes_on(&mut ring, 0);
    ring.apply(SharedWriteOp::Send(0, 15));
    assert_eq!(ring.sent(0), 1);
    ring.clone().settle();
    ring.end();
}

#[test]
fn an_audit_takes_no_extent_that_is_full_of_messages() {
    let mut ring = two_senders(5);
    goes_on(&mut ring, 1);
    for _ in 0..7 {
        goes_on(&mut ring, 0);
        ring.apply(SharedWriteOp::Send(0, 15)); // three extents full, of which none was looked at
    }
    goes_on(&mut ring, 0);
    assert_eq!(ring.sent(0), 7);
    ring.apply(SharedWriteOp::Look(0));
    ring.apply(SharedWriteOp::Die(1));
    (0..3).for_each(|_| ring.apply(SharedWriteOp::Look(1)));
    ring.apply(SharedWriteOp::Grant);
    ring.clone().settle();
    ring.end();
}

#[test]
fn abandoned_tickets_in_a_full_ring_take_no_extents() {
    let mut ring = two_senders(1);
    goes_on(&mut ring, 0); // it has the extent
    for _ in 0..10 {
        goes_on(&mut ring, 1);
        ring.apply(SharedWriteOp::Die(1));
        (0..3).for_each(|_| ring.apply(SharedWriteOp::Look(1)));
        ring.apply(SharedWriteOp::Join(1));
    }
    ring.apply(SharedWriteOp::Grant);
    ring.apply(SharedWriteOp::Close(0));
    (0..2).for_each(|_| ring.apply(SharedWriteOp::Execute(0)));
    (0..3).for_each(|_| ring.apply(SharedWriteOp::Look(0)));
    ring.apply(SharedWriteOp::Grant);
    goes_on(&mut ring, 1);
    ring.apply(SharedWriteOp::Send(1, 0));
    assert_eq!(ring.sent(1), 1, "ten tickets are orphans, the next one is its own");
}

#[test]
fn a_first_ticket_that_may_just_be_written_again_is_not_taken() {
    let layout = Layout::new(2, 256, 100, 1).unwrap();
    let reader = |reported, announced, first| {
        let slots = ([ExtentSlot::default(); 2], [LinkSlot::default(); 1]);
        let mut receiver = ExtentReceiver::new(layout, slots.0, slots.1).unwrap();
        while receiver.grant().is_some() {}
        receiver.open(0);
        let (reported, announced) = (Some(reported), Some(announced));
        receiver.on_link(0, LinkWords { reported, first, ahead: 0, announced }).unwrap();
        receiver.trailer_at(0).unwrap()
    };
    let (first, second) = (Some(layout.trailer_at(0, 0)), Some(layout.trailer_at(1, 0)));
    assert_eq!(reader([0, 0], [1, 0], 1), None, "it was announced only");
    assert_eq!(reader([1, 0], [1, 0], 1), first);
    assert_eq!(reader([1, 0], [2, 0], 1), None, "the next one goes to the same word");
    assert_eq!(reader([1, 0], [2, 2], 77), second, "the one in use is announced with the next");
    assert_eq!(reader([1, 0], [3, 2], 1), None, "more has arrived between the looks");
    assert_eq!(reader([2, 1], [3, 2], 1), first, "further ones go elsewhere");
    assert_eq!(reader([u64::MAX, 0], [0, 1], 1), None);
}

#[test]
fn a_ticket_of_another_link_is_refused() {
    let layout = Layout::new(4, 256, 100, 2).unwrap();
    let slots = ([ExtentSlot::default(); 4], [LinkSlot::default(); 2]);
    let mut receiver = ExtentReceiver::new(layout, slots.0, slots.1).unwrap();
    while receiver.grant().is_some() {}
    for link in 0..2 {
        receiver.open(link);
        let first = u64::from(link) + 1;
        let (reported, announced) = (Some([1, 0]), Some([1, 0]));
        receiver.on_link(link, LinkWords { reported, first, ahead: 0, announced }).unwrap();
        assert!(receiver.trailer_at(link).unwrap().is_some());
    }
    let message = receiver.on_trailer(0, Some(trailer(1, 0, 8))).unwrap();
    assert!(matches!(message, LookOutcome::Message { len: 8, .. }));
    let taken = receiver.on_trailer(0, Some(trailer(2, 32, END)));
    assert_eq!(taken, Err(ExtentError::Ticket { ticket: 2 }));
    let empty = receiver.on_trailer(1, Some(trailer(3, 0, END)));
    assert_eq!(empty, Err(ExtentError::Stray { ticket: 3 }), "nothing lies in front of it");
    assert!(matches!(receiver.on_trailer(0, Some(trailer(3, 32, END))), Ok(LookOutcome::End(_))));
}

fn op() -> impl Strategy<Value = SharedWriteOp> {
    let honest = prop_oneof![
        6 => any::<(u8, u8)>().prop_map(|(nth, len)| SharedWriteOp::Send(nth, len)),
        10 => any::<u8>().prop_map(SharedWriteOp::Execute),
        2 => any::<(u8, u8)>().prop_map(|(nth, choice)| SharedWriteOp::Begin(nth, choice)),
        6 => any::<u8>().prop_map(SharedWriteOp::Drive),
        6 => any::<u8>().prop_map(SharedWriteOp::Look),
        1 => Just(SharedWriteOp::Grant),
        1 => any::<u8>().prop_map(SharedWriteOp::Join),
    ];
    let lies = prop_oneof![
        any::<(u8, u8, u32)>()
            .prop_map(|(nth, ticket, len)| SharedWriteOp::LieTrailer(nth, ticket, len)),
        (any::<u8>(), 0..8u8, Just(END))
            .prop_map(|(nth, to, len)| SharedWriteOp::LieTrailer(nth, to, len)),
        any::<(u8, u8, u8, u8)>().prop_map(|(nth, n, used, at)| SharedWriteOp::LieLink(
            nth,
            n % 4,
            used % 16,
            at % 16
        )),
        any::<i8>().prop_map(SharedWriteOp::LieTail),
        any::<(u8, u16, u8)>()
            .prop_map(|(nth, extent, by)| SharedWriteOp::LieEntry(nth, extent, by)),
    ];
    let ends = prop_oneof![
        any::<u8>().prop_map(SharedWriteOp::Close),
        any::<u8>().prop_map(SharedWriteOp::Die)
    ];
    prop_oneof![40 => honest, 4 => lies, 1 => ends]
}

proptest! {
    #[test]
    fn what_each_sender_sends_is_taken_once_and_in_order(
        (extents, links, max_message, apart) in any::<(u8, u8, u8, bool)>(),
        ops in proptest::collection::vec(op(), 0..600),
    ) {
        run(SharedWriteParams { extents, links, max_message, apart }, &ops);
    }

    #[test]
    fn any_bytes_are_terms_or_an_error(bytes in any::<Vec<u8>>()) {
        if let Ok((terms, rest)) = Terms::decode(&bytes) {
            prop_assert_eq!(&terms.encode()[..], &bytes[..TERMS_LEN]);
            prop_assert_eq!(rest, &bytes[TERMS_LEN..]);
        }
    }

    #[test]
    fn terms_come_out_as_they_went_in(
        extents in 1..=MAX_EXTENTS, lines in 16..1_u32 << 20, longest in 0..900_u32,
        links in 1..=MAX_LINKS, kind in 0..3u8, addr in 1..u64::MAX >> 5, rkey in any::<u32>(),
    ) {
        let place = Place { addr: addr * 8, rkey };
        let layout = Layout::new(extents, lines * 64, longest, links).unwrap();
        let terms = match kind {
            0 => Terms::Sender { place },
            _ => Terms::Receiver { place, layout, link: links - 1, apart: kind == 2 },
        };
        let bytes = terms.encode();
        prop_assert_eq!(Terms::decode(&bytes), Ok((terms, &[][..])));
    }
}

#[test]
fn terms_have_these_bytes() {
    let place = Place { addr: 0x0102_0304_0506_0708, rkey: 0x1112_1314 };
    let layout = Layout::new(0x21, 0x3400, 0x3132, 0x41).unwrap();
    let bytes = [
        [8, 7, 6, 5],
        [4, 3, 2, 1],
        [0x14, 0x13, 0x12, 0x11],
        [0x21, 0, 0, 0],
        [0, 0x34, 0, 0],
        [0x32, 0x31, 0, 0],
        [0x41, 0, 0, 0],
        [0x40, 0, 0, 0],
        [2, 0, 0, 0],
        [0; 4],
    ];
    let receiver = Terms::Receiver { place, layout, link: 0x40, apart: true };
    assert_eq!(receiver.encode(), bytes.as_flattened());
    assert_eq!(Terms::decode(bytes.as_flattened()), Ok((receiver, &[][..])));
    let mut bytes = bytes;
    bytes[3..].fill([0; 4]);
    assert_eq!(Terms::Sender { place }.encode(), bytes.as_flattened());
}

#[test]
fn terms_that_cannot_be_are_named() {
    let place = Place { addr: 4096, rkey: 7 };
    let layout = Layout::new(4, 1024, 100, 2).unwrap();
    let good = Terms::Receiver { place, layout, link: 1, apart: false }.encode();
    let with = |at: usize, byte: u8| {
        let mut bytes = good;
        bytes[at] = byte;
        Terms::decode(&bytes).map(|_| ()).unwrap_err()
    };
    assert_eq!(with(32, 9), TermsError::Kind(9));
    assert_eq!(with(39, 1), TermsError::NotZero);
    assert_eq!(with(32, 0), TermsError::NotZero, "a sender has no extents");
    assert_eq!(with(0, 1), TermsError::Memory);
    assert_eq!(with(28, 2), TermsError::Link(2));
    assert_eq!(with(12, 0), TermsError::Layout(LayoutError::Extents(0)));
    assert_eq!(with(16, 1), TermsError::Layout(LayoutError::ExtentBytes(1025)));
    assert_eq!(with(21, 4), TermsError::Layout(LayoutError::Message(1124)));
    assert_eq!(with(24, 0), TermsError::Layout(LayoutError::Links(0)));
    assert_eq!(with(14, 1), TermsError::Layout(LayoutError::Extents(MAX_EXTENTS + 4)));
    assert_eq!(with(19, 64), TermsError::Layout(LayoutError::ExtentBytes(MAX_EXTENT_BYTES + 1024)));
    assert_eq!(with(26, 1), TermsError::Layout(LayoutError::Links(MAX_LINKS + 2)));
    assert_eq!(Terms::decode(&good[..39]), Err(TermsError::TooShort { len: 39 }));
    let end = Place { addr: u64::MAX - 7, rkey: 0 };
    assert_eq!(Terms::decode(&Terms::Sender { place: end }.encode()), Err(TermsError::Memory));
}
