use std::{vec, vec::Vec};

use proptest::prelude::*;

use super::oracle::*;
use super::*;
use crate::handshake::{Endpoint, Mtu, Options};
use crate::ring::AdvertisedCursor;

const BLOCK: Place = Place { addr: 0x2_0000, rkey: 5 };

fn ring(tail: Tail) -> RingOffer {
    let geometry = Geometry::mirrored(4096, 1024).unwrap();
    RingOffer { place: Place { addr: 0x1_0000, rkey: 9 }, geometry, tail }
}

fn half(ring: Option<RingOffer>) -> HalfOffer {
    HalfOffer { control: Some(BLOCK), ring }
}

fn encoded(offer: &Offer<'_>) -> Vec<u8> {
    let mut out = vec![0; MAX_APPLICATION];
    let len = offer.encode(&mut out).unwrap();
    out.truncate(len);
    out
}

fn good() -> Offer<'static> {
    let (there, back) = (half(Some(ring(Tail::Written))), half(None));
    Offer { initiator_to_acceptor: Some(back), acceptor_to_initiator: Some(there), user: b"user" }
}

#[test]
fn each_fault_is_named() {
    let bytes = encoded(&good());
    let second = OFFER_LEN + HALF_LEN;
    let with = |at: usize, value: u8| {
        let mut bytes = bytes.clone();
        bytes[at] = value;
        Offer::decode(&bytes).map(drop).unwrap_err()
    };
    assert_eq!(Offer::decode(&bytes[..75]), Err(DecodeError::TooShort { len: 75 }));
    assert_eq!(with(0, 0), DecodeError::Directions(0));
    assert_eq!(with(0, 4), DecodeError::Directions(4));
    assert_eq!(with(3, 1), DecodeError::NotZero);
    assert_eq!(with(4, 4), DecodeError::Memory, "a misaligned block");
    assert_eq!(with(6, 0), DecodeError::NotZero, "a key without a block");
    assert_eq!(with(4 + 20, 1), DecodeError::NotZero, "an address without a ring");
    assert_eq!(with(second + 12, 3), DecodeError::Layout(3));
    assert_eq!(with(second + 13, 0), DecodeError::Tail(0));
    assert_eq!(with(second + 13, 4), DecodeError::Tail(4));
    assert_eq!(with(second + 15, 1), DecodeError::NotZero);
    assert_eq!(with(second + 16, 1), DecodeError::Memory, "a misaligned ring");
    let geometry = DecodeError::Geometry(GeometryError::Capacity { bytes: 4096 + 8 });
    assert_eq!(with(second + 28, 1), geometry);
    let geometry = DecodeError::Geometry(GeometryError::MessageTooLong { most: 4088 });
    assert_eq!(with(second + 33, 0x10), geometry);
    let mut beyond = bytes.clone();
    beyond[second + 16..second + 24].copy_from_slice(&(u64::MAX - 8191 - 8).to_le_bytes());
    assert!(Offer::decode(&beyond).is_ok(), "the last one that fits");
    beyond[second + 16..second + 24].copy_from_slice(&(u64::MAX - 8191).to_le_bytes());
    assert_eq!(Offer::decode(&beyond), Err(DecodeError::Memory), "the mirror counts");
}

#[test]
fn what_does_not_fit_is_not_encoded() {
    let error = |offer: Offer<'_>| offer.encode(&mut [0; 600]).unwrap_err();
    let none = Offer { initiator_to_acceptor: None, acceptor_to_initiator: None, ..good() };
    assert_eq!(error(none), EncodeError::NoDirection);
    let long = Offer { user: &[0; MAX_USER + 1], ..good() };
    assert_eq!(error(long), EncodeError::UserTooLong { len: MAX_USER + 1 });
    let nowhere = HalfOffer { control: Some(Place { addr: 0, rkey: 1 }), ring: None };
    let nowhere = Offer { initiator_to_acceptor: Some(nowhere), ..good() };
    assert_eq!(error(nowhere), EncodeError::Memory);
    assert_eq!(encoded(&Offer { user: &[7; MAX_USER], ..good() }).len(), MAX_APPLICATION);
}

#[test]
fn each_protocol_has_its_rings_in_their_places() {
    use ProtocolId as P;
    let (none, written, read) =
        (half(None), half(Some(ring(Tail::Written))), half(Some(ring(Tail::Read))));
    let bare = HalfOffer { control: None, ring: None };
    for sends in [false, true] {
        let (ours, theirs) = if sends { (none, written) } else { (written, none) };
        assert_eq!(ours.fits(P::BUFFERED_WRITE, sends), Ok(()));
        let wrong = if sends { FitError::UnwantedRing } else { FitError::NoRing };
        assert_eq!(theirs.fits(P::BUFFERED_WRITE, sends), Err(wrong));
        assert_eq!(bare.fits(P::BUFFERED_WRITE, sends), Err(FitError::NoControl));
        assert_eq!(ours.fits(P::SEND_RECV, sends), Err(FitError::Protocol(1)));
    }
    assert_eq!(read.fits(P::BUFFERED_WRITE, false), Err(FitError::Tail(Tail::Read)));
    assert_eq!(read.fits(P::BUFFERED_READ, true), Ok(()));
    assert_eq!(written.fits(P::BUFFERED_READ, true), Err(FitError::Tail(Tail::Written)));
    assert_eq!(none.fits(P::BUFFERED_READ, true), Err(FitError::NoRing));
    assert_eq!(read.fits(P::BUFFERED_READ, false), Err(FitError::UnwantedRing));
    assert_eq!(bare.fits(P::BUFFERED_READ, false), Ok(()));
    let blind = HalfOffer { control: None, ..read };
    assert_eq!(blind.fits(P::BUFFERED_READ, true), Err(FitError::NoControl));
}

#[test]
fn an_offer_fits_the_frame_that_brings_it() {
    let end = Some(Endpoint { qp_num: 1, psn: 2, recv_depth: 0, max_message: 1024 });
    let frame = Parameters {
        protocol: ProtocolId::BUFFERED_WRITE,
        options: Options::NONE,
        initiator_to_acceptor: end,
        acceptor_to_initiator: end,
        lid: 0,
        gid: [0; 16],
        mtu: Mtu::B1024,
        application: b"",
    };
    assert_eq!(good().fits(&frame, true), Ok(()));
    assert_eq!(good().fits(&frame, false), Err(FitError::NoRing));
    let one_way = Parameters { acceptor_to_initiator: None, ..frame };
    assert_eq!(good().fits(&one_way, true), Err(FitError::Directions));
}

fn half_sample() -> impl Strategy<Value = Option<HalfNumbers>> {
    let place = || {
        let usual = (1..1u64 << 40, any::<u32>()).prop_map(|(addr, key)| (8 * addr, key));
        prop_oneof![6 => usual, 1 => any::<(u64, u32)>()]
    };
    let control = proptest::option::weighted(0.8, place());
    let rest = (4..33u8, 0..4096u32, any::<(bool, u8)>());
    let ring = (place(), rest).prop_map(|((addr, key), (log, longest, (mirrored, tail)))| {
        (addr, key, log, longest, mirrored, tail)
    });
    proptest::option::weighted(0.8, (control, proptest::option::of(ring)))
}

proptest! {
    #[test]
    fn every_offer_goes_there_and_back(
        halves in [half_sample(), half_sample()],
        user in proptest::collection::vec(any::<u8>(), 0..450),
    ) {
        check_sample(&RingOfferSample { halves, user });
    }

    #[test]
    fn arbitrary_bytes_do_no_harm(
        bytes in proptest::collection::vec(any::<u8>(), 0..90), at in 0..80usize, value: u8,
    ) {
        check_bytes(&bytes);
        let mut changed = encoded(&good());
        changed[at] = value;
        check_bytes(&changed);
    }

    #[test]
    fn what_is_told_is_understood(known in 0..1u64 << 60, ahead in 0..1u64 << 29, is_last: bool) {
        let told = AdvertisedCursor { position: 8 * (known + ahead), is_last };
        prop_assert_eq!(AdvertisedCursor::from_word(told.to_word()), told);
        prop_assert_eq!(AdvertisedCursor::from_imm(told.to_imm(), 8 * known), told);
    }
}
