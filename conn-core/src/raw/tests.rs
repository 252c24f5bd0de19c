use std::{vec, vec::Vec};

use proptest::prelude::*;

use super::oracle::*;
use super::*;

fn encoded(offer: &Offer<'_>) -> Vec<u8> {
    let mut out = vec![0; MAX_APPLICATION];
    let len = offer.encode(&mut out).unwrap();
    out.truncate(len);
    out
}

fn good() -> Vec<u8> {
    let memory = Some(Memory { addr: 0x1_0000, len: 4096, rkey: 9 });
    encoded(&Offer { transport: Transport::Rc, qkey: 0, memory, user: b"user" })
}

#[test]
fn each_fault_is_named() {
    let with = |at: usize, value: u8| {
        let mut bytes = good();
        bytes[at] = value;
        Offer::decode(&bytes).map(drop).unwrap_err()
    };
    assert_eq!(Offer::decode(&good()[..27]), Err(DecodeError::TooShort { len: 27 }));
    assert_eq!(with(0, 0), DecodeError::Transport(0));
    assert_eq!(with(0, 4), DecodeError::Transport(4));
    assert_eq!(with(3, 1), DecodeError::NotZero);
    assert_eq!(with(4, 1), DecodeError::NotZero, "a Q_Key with RC");
    assert_eq!(with(21, 0), DecodeError::NotZero, "a key of no memory");
    let mut beyond = good();
    beyond[12..20].fill(0xff);
    assert_eq!(Offer::decode(&beyond), Err(DecodeError::Memory));
}

#[test]
fn the_longest_user_data_fill_the_application_data() {
    let offer = Offer { transport: Transport::Ud, qkey: 1, memory: None, user: &[7; MAX_USER] };
    assert_eq!(encoded(&offer).len(), MAX_APPLICATION);
    let longer = Offer { user: &[7; MAX_USER + 1], ..offer };
    assert_eq!(longer.encode(&mut [0; 600]), Err(EncodeError::UserTooLong { len: MAX_USER + 1 }));
}

#[test]
fn transports_go_there_and_back() {
    for transport in [Transport::Rc, Transport::Uc, Transport::Ud] {
        assert_eq!(Transport::from_code(transport.code()), Some(transport));
    }
    assert_eq!((Transport::from_code(0), Transport::from_code(4)), (None, None));
}

fn sample() -> impl Strategy<Value = RawOfferSample> {
    let memory =
        prop_oneof![
            Just(None),
            (any::<u32>(), 1..u64::from(u32::MAX), any::<u32>())
                .prop_map(|(addr, len, rkey)| Some((addr.into(), len, rkey))),
            any::<(u64, u64, u32)>().prop_map(Some),
        ];
    let qkey = prop_oneof![Just(0), any::<u32>()];
    let user = proptest::collection::vec(any::<u8>(), 0..500);
    (0..3u8, qkey, memory, user).prop_map(|(transport, qkey, memory, user)| RawOfferSample {
        transport,
        qkey,
        memory,
        user,
    })
}

proptest! {
    #[test]
    fn every_offer_goes_there_and_back(sample in sample()) {
        check_sample(&sample);
    }

    #[test]
    fn arbitrary_bytes_do_no_harm(
        bytes in proptest::collection::vec(any::<u8>(), 0..60), at in 0..32usize, value: u8,
    ) {
        check_bytes(&bytes);
        let mut changed = good();
        changed[at] = value;
        check_bytes(&changed);
    }
}
