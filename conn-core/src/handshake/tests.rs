use std::{println, string::String, vec, vec::Vec};

use proptest::prelude::*;

use super::oracle::*;
use super::*;

const END: EndpointNumbers = (0x00ab_cdef, 0x0012_3456, 64, 8192);

fn parameters(ends: [Option<EndpointNumbers>; 2], application: Vec<u8>) -> FrameSample {
    let gid = *b"\0\0\0\0\0\0\0\0\0\0\xff\xff\x7f\0\0\x01";
    FrameSample::Parameters {
        accept: false,
        protocol: 1,
        options: 2,
        ends,
        lid: 7,
        gid,
        mtu: 3,
        application,
    }
}

fn samples() -> Vec<FrameSample> {
    vec![
        parameters([Some(END), None], vec![]),
        parameters([None, Some(END)], vec![1]),
        parameters([Some(END), Some(END)], vec![9; MAX_APPLICATION]),
        FrameSample::Refuse(3, "κ=2".into()),
        FrameSample::Refuse(9, "x".repeat(MAX_TEXT)),
        FrameSample::Ready,
    ]
}

fn encoded(sample: &FrameSample) -> Vec<u8> {
    let mut out = vec![0; MAX_FRAME];
    let len = sample.frame().encode(&mut out).unwrap();
    out.truncate(len);
    out
}

#[test]
fn the_samples_go_there_and_back() {
    samples().iter().for_each(check_sample);
}

#[test]
fn a_frame_with_a_changed_byte_does_not_decode_the_same() {
    let mut frames = 0;
    for sample in samples() {
        let good = encoded(&sample);
        for at in 0..good.len().min(80) {
            for value in 0..=255 {
                let mut bytes = good.clone();
                bytes[at] = value;
                check_bytes(&bytes);
                assert_eq!(decode(&bytes) == decode(&good), bytes == good, "byte {at}: {value}");
                frames += 1;
            }
        }
    }
    println!("handshake: {frames} frames");
}

#[test]
fn each_fault_is_named() {
    let hello = encoded(&samples()[0]);
    let with = |at: usize, value: u8| {
        let mut bytes = hello.clone();
        bytes[at] = value;
        decode(&bytes).unwrap_err()
    };
    assert_eq!(with(0, b'X'), DecodeError::NotAPeer);
    assert_eq!(with(8, 2), DecodeError::Version { theirs: 2 });
    assert_eq!(with(10, 0), DecodeError::Kind(0));
    assert_eq!(with(10, 5), DecodeError::Kind(5));
    assert_eq!(with(11, 1), DecodeError::Reserved);
    assert_eq!(with(12, 39), DecodeError::BodyLength { len: 39 });
    assert_eq!(with(12, 41), DecodeError::Incomplete { need: 57 });
    assert_eq!(with(14, 1), DecodeError::BodyLength { len: 0x1_0028 });
    assert_eq!(with(17, 0), DecodeError::Flags(0));
    assert_eq!(with(17, 3), DecodeError::BodyLength { len: 40 });
    assert_eq!(with(17, 4), DecodeError::Flags(4));
    assert_eq!(with(18, 0), DecodeError::Mtu(0));
    assert_eq!(with(18, 6), DecodeError::Mtu(6));
    assert_eq!(with(22, 1), DecodeError::BodyLength { len: 40 });
    assert_eq!(with(23, 3), DecodeError::ApplicationTooLong { len: 0x300 });
    assert_eq!(with(43, 1), DecodeError::MoreThan24Bits { value: 0x01ab_cdef });
    assert_eq!(with(47, 1), DecodeError::MoreThan24Bits { value: 0x0112_3456 });
    let mut refuse = encoded(&samples()[3]);
    refuse[HEADER_LEN + REFUSAL_LEN] = 0xff;
    assert_eq!(decode(&refuse), Err(DecodeError::Text));
    refuse[HEADER_LEN + 3] = 1;
    assert_eq!(decode(&refuse), Err(DecodeError::Reserved));
}

#[test]
fn a_bad_first_byte_and_an_oversized_body_are_refused_at_once() {
    assert_eq!(decode(b"G"), Err(DecodeError::NotAPeer));
    assert_eq!(decode(b""), Err(DecodeError::Incomplete { need: HEADER_LEN }));
    assert_eq!(decode(b"RDMACONN\x02\0"), Err(DecodeError::Version { theirs: 2 }));
    for (kind, most) in [(1, 568), (2, 568), (3, 259), (4, 0u32)] {
        let mut header = b"RDMACONN\x01\0".to_vec();
        header.extend([kind, 0]);
        header.extend((most + 1).to_le_bytes());
        assert_eq!(decode(&header), Err(DecodeError::BodyLength { len: most + 1 }));
    }
}

#[test]
fn what_does_not_fit_a_frame_is_not_encoded() {
    let wrong = [
        parameters([None, None], vec![]),
        parameters([Some((1 << 24, 0, 0, 0)), None], vec![]),
        parameters([None, Some((0, u32::MAX, 0, 0))], vec![]),
        parameters([Some(END), None], vec![0; MAX_APPLICATION + 1]),
        FrameSample::Refuse(1, "x".repeat(MAX_TEXT + 1)),
    ];
    wrong.iter().for_each(check_sample);
    let error = |sample: &FrameSample| sample.frame().encode(&mut [0; MAX_FRAME]).unwrap_err();
    assert_eq!(error(&wrong[0]), EncodeError::NoDirection);
    assert_eq!(error(&wrong[1]), EncodeError::MoreThan24Bits { value: 1 << 24 });
    assert_eq!(error(&wrong[2]), EncodeError::MoreThan24Bits { value: u32::MAX });
    assert_eq!(error(&wrong[3]), EncodeError::ApplicationTooLong { len: 513 });
    assert_eq!(error(&wrong[4]), EncodeError::TextTooLong { len: 256 });
}

#[test]
fn the_mtu_is_numbered_as_in_the_verbs() {
    let sizes: Vec<u32> = (1..=5).map(|code| Mtu::from_code(code).unwrap().bytes()).collect();
    assert_eq!(sizes, [256, 512, 1024, 2048, 4096]);
    assert_eq!((Mtu::from_code(0), Mtu::from_code(6)), (None, None));
}

fn numbers() -> impl Strategy<Value = Option<EndpointNumbers>> {
    prop_oneof![
        1 => Just(None),
        6 => (0..1u32 << 24, 0..1u32 << 24, any::<u32>(), any::<u32>()).prop_map(Some),
        1 => any::<EndpointNumbers>().prop_map(Some),
    ]
}

fn sample() -> impl Strategy<Value = FrameSample> {
    let fields = (any::<(bool, u8, u8, u16, [u8; 16], u8)>(), [numbers(), numbers()]);
    let data = proptest::collection::vec(any::<u8>(), 0..600);
    prop_oneof![
        (fields, data).prop_map(
            |(((accept, protocol, options, lid, gid, mtu), ends), application)| {
                FrameSample::Parameters {
                    accept,
                    protocol,
                    options,
                    ends,
                    lid,
                    gid,
                    mtu,
                    application,
                }
            }
        ),
        any::<(u16, String)>().prop_map(|(reason, text)| FrameSample::Refuse(reason, text)),
    ]
}

proptest! {
    #[test]
    fn every_frame_goes_there_and_back(sample in sample()) {
        check_sample(&sample);
    }

    #[test]
    fn arbitrary_bytes_do_no_harm(
        bytes in proptest::collection::vec(any::<u8>(), 0..700), sample in 0..6usize, at: usize,
    ) {
        check_bytes(&bytes);
        let mut frame = encoded(&samples()[sample]);
        let at = at % frame.len();
        frame.truncate(at);
        frame.extend(&bytes);
        check_bytes(&frame);
    }
}
