use std::{string::ToString, vec, vec::Vec};

use proptest::prelude::*;

use super::oracle::{assemble, check_bytes, extended_headers};
use super::*;
use crate::headers::{
    Aeth, AtomicAckEth, AtomicEth, Deth, Ieth, ImmDt, NakCode, Reth, RnrTimer, Syndrome,
};
use crate::opcode::ALL;

const QPN: std::ops::Range<u32> = 0..1 << 24;

fn syndrome() -> impl Strategy<Value = Syndrome> {
    (any::<u8>()).prop_filter_map("reserved", Syndrome::from_u8)
}

fn bth() -> impl Strategy<Value = Bth> {
    let flags = any::<[bool; 5]>();
    (proptest::sample::select(ALL), flags, any::<u16>(), QPN, QPN).prop_map(
        |(opcode, [solicited, mig_req, fecn, becn, ack_req], pkey, dest_qpn, psn)| Bth {
            solicited,
            mig_req,
            pkey,
            fecn,
            becn,
            ack_req,
            ..Bth::new(opcode, dest_qpn, Psn::new(psn))
        },
    )
}

/// The headers that the opcode has, out of numbers.
fn complete(bth: Bth, [a, b, c]: [u64; 3], aeth: Aeth) -> Headers {
    let (opcode, word) = (bth.opcode, b as u32);
    let qpn = word % QPN.end;
    Headers {
        bth,
        deth: opcode.has_deth().then_some(Deth { qkey: a as u32, src_qpn: qpn }),
        reth: opcode.has_reth().then_some(Reth { va: a, rkey: word, len: c as u32 }),
        atomic: opcode.has_atomic_eth().then_some(AtomicEth {
            va: a,
            rkey: word,
            swap_add: c,
            compare: a ^ b,
        }),
        aeth: opcode.has_aeth().then_some(aeth),
        atomic_ack: opcode.has_atomic_ack_eth().then_some(AtomicAckEth { original: a }),
        imm: opcode.has_imm().then_some(ImmDt(c as u32)),
        ieth: opcode.has_ieth().then_some(Ieth { rkey: word }),
    }
}

/// A length that the opcode permits, as near as can be to what is wished for.
fn permitted_len(rule: PayloadRule, wish: usize) -> usize {
    match rule {
        PayloadRule::Empty => 0,
        PayloadRule::UpToMtu => wish,
        PayloadRule::Rest => wish.max(1),
        PayloadRule::Mtu => wish.next_power_of_two().max(256),
        PayloadRule::AtomicWrite => 8,
    }
}

prop_compose! {
    fn headers()(
        bth in bth(), numbers: [u64; 3], syndrome in syndrome(), msn in QPN,
    ) -> Headers {
        complete(bth, numbers, Aeth { syndrome, msn })
    }
}

prop_compose! {
    /// A packet: headers with the padding of their payload.
    fn packet()(
        mut headers in headers(), wish in 0..=MAX_PAYLOAD, fill: u8,
    ) -> (Headers, Vec<u8>) {
        let len = permitted_len(headers.bth.opcode.payload_rule(), wish);
        headers.bth.pad = lengths::padding_of(len);
        (headers, (0..len).map(|at| at as u8 ^ fill).collect())
    }
}

proptest! {
    #[test]
    fn every_packet_goes_there_and_back((headers, payload) in packet()) {
        let bytes = assemble(&headers, &payload);
        prop_assert_eq!(parse(&bytes), Ok(Packet { headers, payload: &payload[..] }));
        check_bytes(&bytes);
    }

    #[test]
    fn a_packet_with_other_bytes_is_judged_as_the_tables_say(
        (headers, payload) in packet(),
        changes in proptest::collection::vec((0..64_usize, any::<u8>()), 0..4),
        len in proptest::option::of(0..200_usize),
    ) {
        let mut bytes = assemble(&headers, &payload);
        for (at, byte) in changes {
            let at = at % bytes.len();
            bytes[at] = byte;
        }
        bytes.truncate(len.unwrap_or(bytes.len()));
        check_bytes(&bytes);
    }

    #[test]
    fn arbitrary_bytes_do_no_harm(bytes in proptest::collection::vec(any::<u8>(), 0..100)) {
        check_bytes(&bytes);
    }

    #[test]
    fn a_header_too_many_or_too_few_is_not_written(headers in headers(), which in 0..7) {
        let mut wrong = headers;
        let flip = |there: bool| !there;
        match which {
            0 => wrong.deth = flip(wrong.deth.is_some()).then_some(Deth { qkey: 0, src_qpn: 0 }),
            1 => wrong.reth = flip(wrong.reth.is_some()).then_some(Reth { va: 0, rkey: 0, len: 0 }),
            2 => wrong.atomic = flip(wrong.atomic.is_some())
                .then_some(AtomicEth { va: 0, rkey: 0, swap_add: 0, compare: 0 }),
            3 => wrong.aeth = flip(wrong.aeth.is_some())
                .then_some(Aeth { syndrome: Syndrome::ACK, msn: 0 }),
            4 => wrong.atomic_ack = flip(wrong.atomic_ack.is_some())
                .then_some(AtomicAckEth { original: 0 }),
            5 => wrong.imm = flip(wrong.imm.is_some()).then_some(ImmDt(0)),
            _ => wrong.ieth = flip(wrong.ieth.is_some()).then_some(Ieth { rkey: 0 }),
        }
        let mut bytes = [7; MAX_HEADERS];
        let error = WriteError::Mismatch(headers.bth.opcode);
        prop_assert_eq!(write(&wrong, &mut bytes), Err(error));
        prop_assert_eq!(bytes, [7; MAX_HEADERS]);
    }
}

/// Lengths around every limit, for every opcode and padding, with known syndromes and with
/// reserved ones.
#[test]
fn each_length_is_judged_as_the_tables_say() {
    let lens = (0..80).chain([256, 512, 1024, 2048, 4096].into_iter().flat_map(|mtu| {
        let least = mtu + 8;
        (least..least + 48).chain([mtu - 4])
    }));
    for (len, fill) in lens.flat_map(|len| [(len, 0), (len, 0xff)]) {
        for opcode in 0..=255 {
            for pad in 0..4 {
                let mut bytes = vec![fill; len];
                bytes.iter_mut().zip([opcode, pad << 4]).for_each(|(byte, value)| *byte = value);
                check_bytes(&bytes);
            }
        }
    }
    check_bytes(&vec![0; MAX_PACKET + 4]);
}

#[test]
fn a_wrong_version_is_refused_before_the_opcode_is_read() {
    let mut bytes = [0xff; 16];
    bytes[1] = 0x41;
    assert_eq!(parse(&bytes), Err(ParseError::Version(1)));
    bytes[1] = 0x40;
    assert_eq!(parse(&bytes), Err(ParseError::UnknownOpcode(0xff)));
}

#[test]
fn the_longest_packet_is_accepted() {
    let mut headers = Headers::new(Bth::new(Opcode::RcWriteOnlyImm, 1, Psn::new(2)));
    headers.reth = Some(Reth { va: 0, rkey: 0, len: 4096 });
    headers.imm = Some(ImmDt(3));
    let bytes = assemble(&headers, &[5; MAX_PAYLOAD]);
    assert!(bytes.len() <= MAX_PACKET);
    assert_eq!(parse(&bytes).map(|packet| packet.payload.len()), Ok(MAX_PAYLOAD));
    let longer = assemble(&headers, &[5; MAX_PAYLOAD + 4]);
    let error = ParseError::PayloadLen { opcode: Opcode::RcWriteOnlyImm, len: MAX_PAYLOAD + 4 };
    assert_eq!(parse(&longer), Err(error));
}

/// Packets of `vectors/vectors.txt`, with the fields that scapy was given.
#[test]
fn headers_have_the_bytes_that_scapy_gives_them() {
    let bth = |opcode, qpn, psn| Bth { mig_req: false, ..Bth::new(opcode, qpn, Psn::new(psn)) };
    let mut write_imm = bth(Opcode::RcWriteOnlyImm, 0x12, 6);
    (write_imm.solicited, write_imm.pkey) = (true, 0x8001);
    let mut write_imm = Headers::new(write_imm);
    write_imm.reth = Some(Reth { va: 0x7f00_1122_3344_5566, rkey: 0x0102_0304, len: 12 });
    write_imm.imm = Some(ImmDt(0xdead_beef));

    let mut add = bth(Opcode::RcFetchAdd, 0x12, 7);
    add.ack_req = true;
    let mut add = Headers::new(add);
    let (va, rkey) = (0x7f00_0000_0000_1000, 0x0506_0708);
    add.atomic = Some(AtomicEth { va, rkey, swap_add: 1, compare: 0 });

    let mut datagram = bth(Opcode::UdSendOnlyImm, 1, 8);
    (datagram.pad, datagram.fecn, datagram.becn) = (1, true, true);
    let mut datagram = Headers::new(datagram);
    datagram.deth = Some(Deth { qkey: 0x1111_1111, src_qpn: 0x33_0044 });
    datagram.imm = Some(ImmDt(0xdead_beef));

    let mut cnp = bth(Opcode::Cnp, 0x11_2233, 0);
    cnp.becn = true;
    let cnp = Headers::new(cnp);

    let packets: [(Headers, &[u8], &[u8]); 4] = [
        (
            write_imm,
            b"twelve bytes",
            b"\x0b\x80\x80\x01\0\0\0\x12\0\0\0\x06\
            \x7f\0\x11\x22\x33\x44\x55\x66\x01\x02\x03\x04\0\0\0\x0c\xde\xad\xbe\xef\
            twelve bytes\0\0\0\0",
        ),
        (
            add,
            b"",
            b"\x14\0\xff\xff\0\0\0\x12\x80\0\0\x07\
            \x7f\0\0\0\0\0\x10\0\x05\x06\x07\x08\
            \0\0\0\0\0\0\0\x01\0\0\0\0\0\0\0\0\0\0\0\0",
        ),
        (
            datagram,
            b"abc",
            b"\x65\x10\xff\xff\xc0\0\0\x01\0\0\0\x08\
            \x11\x11\x11\x11\0\x33\0\x44\xde\xad\xbe\xefabc\0\0\0\0\0",
        ),
        (
            cnp,
            b"",
            b"\x81\0\xff\xff\x40\x11\x22\x33\0\0\0\0\
            \0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0",
        ),
    ];
    for (headers, payload, bytes) in packets {
        assert_eq!(assemble(&headers, payload), bytes);
        assert_eq!(parse(bytes), Ok(Packet { headers, payload }));
    }
}

#[test]
fn fields_that_have_too_few_bits_are_not_written() {
    let ack = |syndrome, msn| {
        let mut headers = Headers::new(Bth::new(Opcode::RcAck, 1, Psn::new(2)));
        headers.aeth = Some(Aeth { syndrome, msn });
        headers
    };
    let datagram = |src_qpn| {
        let mut headers = Headers::new(Bth::new(Opcode::UdSendOnly, 1, Psn::new(2)));
        headers.deth = Some(Deth { qkey: 0, src_qpn });
        headers
    };
    let with = |change: fn(&mut Bth)| {
        let mut headers = ack(Syndrome::ACK, 0);
        change(&mut headers.bth);
        headers
    };
    for (headers, field, value, max) in [
        (with(|bth| bth.dest_qpn = 1 << 24), "dest_qpn", 1 << 24, 0xff_ffff),
        (with(|bth| bth.pad = 4), "pad", 4, 3),
        (with(|bth| bth.tver = 16), "tver", 16, 15),
        (datagram(1 << 24), "src_qpn", 1 << 24, 0xff_ffff),
        (ack(Syndrome::ACK, 1 << 24), "msn", 1 << 24, 0xff_ffff),
        (ack(Syndrome::Ack { credits: 32 }, 0), "credits", 32, 31),
    ] {
        let mut bytes = [7; MAX_HEADERS];
        let error = WriteError::TooLarge { field, value, max };
        assert_eq!(write(&headers, &mut bytes), Err(error));
        assert_eq!(bytes, [7; MAX_HEADERS]);
    }
}

#[test]
fn every_syndrome_goes_there_and_back() {
    let known: Vec<_> = (0..=255).filter_map(Syndrome::from_u8).collect();
    assert_eq!(known.len(), 32 + 32 + 5);
    for value in 0..=255 {
        if let Some(syndrome) = Syndrome::from_u8(value) {
            assert_eq!(syndrome.to_u8(), value);
        }
    }
    let rnr = RnrTimer::new(14).map(|timer| Syndrome::RnrNak { timer });
    assert_eq!(Syndrome::from_u8(0x2e), rnr);
    assert_eq!(Syndrome::from_u8(0x62), Some(Syndrome::Nak(NakCode::RemoteAccessError)));
    assert_eq!(Syndrome::from_u8(0x65), None);
    assert_eq!(Syndrome::from_u8(0x40), None);
    assert_eq!(Syndrome::from_u8(0x80), None);
}

/// Compares the headers of each opcode with the tables of the oracle.
#[test]
fn headers_are_those_of_the_tables() {
    let mut most = 0;
    for value in 0..=255 {
        let extended = extended_headers(value);
        let opcode = Opcode::from_u8(value);
        assert_eq!(opcode.is_some(), extended.is_some(), "{value:#04x}");
        let (Some(opcode), Some(extended)) = (opcode, extended) else { continue };
        assert_eq!(opcode.to_u8(), value);
        assert_eq!(opcode.header_len(), 12 + extended.len(), "{opcode}");
        most = most.max(opcode.header_len());
    }
    assert_eq!(most, MAX_HEADERS);
}

#[test]
fn parse_errors_count_as_invalid_requests_or_are_dropped() {
    let opcode = Opcode::RcSendOnly;
    for answered in [
        ParseError::UnknownOpcode(0x1f),
        ParseError::HeadersTruncated { opcode, len: 16 },
        ParseError::Padding { pad: 1, len: 0 },
        ParseError::PayloadLen { opcode, len: 4100 },
    ] {
        assert!(answered.is_invalid_request(), "{answered}");
    }
    for dropped in [
        ParseError::Truncated { len: 12 },
        ParseError::TooLong { len: 9000 },
        ParseError::NotWords { len: 17 },
        ParseError::Version(1),
        ParseError::UnknownSyndrome(0x40),
    ] {
        assert!(!dropped.is_invalid_request(), "{dropped}");
    }
}

#[test]
fn errors_name_the_value_and_what_is_allowed() {
    let opcode = Opcode::RcReadRequest;
    for (error, text) in [
        (ParseError::Truncated { len: 15 }, "a packet of 15 bytes is shorter than 16"),
        (ParseError::NotWords { len: 17 }, "the length of a packet, 17, is no multiple of 4"),
        (ParseError::UnknownOpcode(0x1f), "opcode 0x1f is unknown"),
        (
            ParseError::HeadersTruncated { opcode, len: 20 },
            "a packet of 20 bytes has no room for the 28 bytes of headers of RcReadRequest (0x0c)",
        ),
        (
            ParseError::PayloadLen { opcode, len: 4 },
            "RcReadRequest (0x0c) does not permit a payload of 4 bytes",
        ),
    ] {
        assert_eq!(error.to_string(), text);
    }
}
