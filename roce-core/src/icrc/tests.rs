use std::net::SocketAddr;
use std::vec::Vec;

use proptest::prelude::*;

use super::oracle::{Routed, check_sealing, datagram, slow_icrc};
use super::*;
use crate::codec;

const FLOW: (&str, &str) = ("10.0.0.1:4791", "10.0.0.2:4791");
const FLOW_6: (&str, &str) = ("[fd00::1]:4791", "[fd00::2]:4791");

fn flow((source, dest): (&str, &str)) -> Flow {
    Flow::new(source.parse().unwrap(), dest.parse().unwrap()).unwrap()
}

/// Packets have whole words.
fn packet() -> impl Strategy<Value = Vec<u8>> {
    let words = prop_oneof![4..20_usize, Just(MAX_PACKET / 4), 4..=MAX_PACKET / 4];
    words.prop_flat_map(|words| proptest::collection::vec(any::<u8>(), 4 * words))
}

fn sockets() -> impl Strategy<Value = (SocketAddr, SocketAddr)> {
    // An IPv4-mapped address is no IPv6 address on the wire.
    let v6 = any::<[u8; 16]>().prop_map(|mut octets| {
        octets[0] |= 0x20;
        octets
    });
    let ports = any::<[u16; 2]>();
    prop_oneof![
        (any::<[[u8; 4]; 2]>(), ports).prop_map(|([a, b], [p, q])| ((a, p).into(), (b, q).into())),
        ([v6.clone(), v6], ports).prop_map(|([a, b], [p, q])| ((a, p).into(), (b, q).into())),
    ]
}

fn routed() -> impl Strategy<Value = Routed> {
    let flags = prop_oneof![Just(0x4000), Just(0), any::<u16>()];
    (any::<u16>(), flags, any::<[u8; 4]>()).prop_map(|(id, flags, varying)| Routed {
        id,
        flags,
        varying,
    })
}

proptest! {
    #[test]
    fn the_icrc_equals_the_slow_one_and_yields_the_identification(
        sockets in sockets(), routed in routed(), packet in packet(), cut: usize,
    ) {
        check_sealing(sockets, routed, &packet, cut);
    }

    /// Over IPv6 every change is found; over IPv4 a change of up to 32 bits in a row is found, or
    /// passes for another identification: it does not pass for the one that was sent.
    #[test]
    fn a_changed_packet_is_not_the_one_that_was_sent(
        mut packet in packet(), id: u16, at: usize, change in 1..=u32::MAX,
    ) {
        for addresses in [FLOW, FLOW_6] {
            let flow = flow(addresses);
            flow.seal(id, &mut packet).unwrap();
            let as_sent = flow.check(0, &packet).unwrap();
            let mut changed = packet.clone();
            let at = at % (packet.len() - 3);
            changed[at..].iter_mut().zip(change.to_be_bytes()).for_each(|(byte, by)| *byte ^= by);
            // The reserved byte may change.
            changed[RESERVED] = packet[RESERVED];
            if changed != packet {
                prop_assert_ne!(flow.check(0, &changed), Ok(as_sent));
            }
        }
    }

    #[test]
    fn packets_of_a_run_are_numbered(
        segment in 4..300_usize, packets in 0..70_usize, last in 4..300_usize, fill: u8,
    ) {
        let (segment, last) = (4 * segment, 4 * last.min(segment - 1).max(4));
        let mut run: Vec<u8> = (0..segment * packets + last).map(|at| at as u8 ^ fill).collect();
        let flow = flow(FLOW);
        flow.seal_run(segment, &mut run).unwrap();
        for (id, packet) in (0..).zip(run.chunks(segment)) {
            prop_assert_eq!(flow.check(0, packet), Ok(Checked::V4 { id, dont_fragment: true }));
        }
    }
}

/// The addresses and ports of a datagram, and the packet in it.
fn dissect(datagram: &[u8]) -> ((SocketAddr, SocketAddr), &[u8]) {
    let octets = |at: usize| -> [u8; 16] { *datagram[at..].first_chunk().unwrap() };
    let port = |at: usize| u16::from_be_bytes([datagram[at], datagram[at + 1]]);
    let short = |at: usize| -> [u8; 4] { *datagram[at..].first_chunk().unwrap() };
    match datagram[0] >> 4 {
        4 => (((short(12), port(20)).into(), (short(16), port(22)).into()), &datagram[28..]),
        _ => (((octets(8), port(40)).into(), (octets(24), port(42)).into()), &datagram[48..]),
    }
}

/// Datagrams that scapy has computed the ICRC of: see `vectors/make.py`.
fn vectors() -> Vec<(&'static str, Vec<u8>)> {
    let bytes = |hex: &str| -> Vec<u8> {
        let digits = |at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap();
        (0..hex.len()).step_by(2).map(digits).collect()
    };
    let line = |line: &'static str| {
        let (name, hex) = line.split_once(' ').unwrap();
        (name, bytes(hex))
    };
    include_str!("../../vectors/vectors.txt").lines().map(line).collect()
}

#[test]
fn scapy_computes_the_same() {
    let vectors = vectors();
    assert_eq!(vectors.len(), 8);
    for (name, datagram) in vectors {
        let (sockets, packet) = dissect(&datagram);
        assert_eq!(packet.last_chunk(), Some(&slow_icrc(&datagram)), "the oracle, {name}");
        let field = |at: usize| u16::from_be_bytes([datagram[at], datagram[at + 1]]);
        let expected = match datagram[0] >> 4 {
            4 => Checked::V4 { id: field(4), dont_fragment: field(6) == DONT_FRAGMENT },
            _ => Checked::V6,
        };
        let flow = Flow::new(sockets.0, sockets.1).unwrap();
        assert_eq!(flow.check(0, packet), Ok(expected), "{name}");
        codec::parse(packet).unwrap();
    }
}

#[test]
fn the_payload_of_a_packet_of_scapy_is_found() {
    let (_, datagram) = &vectors()[0];
    let packet = codec::parse(&datagram[28..]).unwrap();
    let bth = packet.headers.bth;
    assert_eq!(packet.payload, b"hello");
    assert_eq!((bth.dest_qpn, bth.psn.get(), bth.pad), (17, 0xff_ffff, 3));
    assert!(bth.ack_req && bth.mig_req && !bth.solicited);
}

/// With other addresses, as behind address translation. Over IPv4 all but one in some 32,768 are
/// found: these are.
#[test]
fn a_packet_from_other_addresses_is_refused() {
    let mut packet = [0x24; 64];
    flow(FLOW).seal(0, &mut packet).unwrap();
    let other = flow(("10.0.0.3:4791", FLOW.1));
    assert_eq!(other.check(0, &packet), Err(CheckError::Mismatch));
    flow(FLOW_6).seal(0, &mut packet).unwrap();
    let other = flow(("[fd00::3]:4791", FLOW_6.1));
    assert_eq!(other.check(0, &packet), Err(CheckError::Mismatch));
}

/// Some 4 of 2^17 arbitrary changes pass, where DF may be missing: 2^-15.
#[test]
fn few_wrong_packets_pass_over_ipv4() {
    let flow = flow(FLOW);
    let mut packet = [0x24; 64];
    flow.seal(0, &mut packet).unwrap();
    let mut state = 1_u64;
    let passed = (0..1 << 17).filter(|_| {
        // Of a linear congruential generator, the upper bits.
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        packet[40..48].copy_from_slice(&state.to_be_bytes());
        flow.check(0, &packet).is_ok()
    });
    assert!((1..16).contains(&passed.count()));
}

#[test]
fn mapped_addresses_are_ipv4_and_mixed_families_give_no_flow() {
    let mapped = flow(("[::ffff:10.0.0.1]:4791", "[::ffff:10.0.0.2]:4791"));
    assert_eq!(mapped, flow(FLOW));
    assert_eq!(Flow::new(FLOW.0.parse().unwrap(), FLOW_6.1.parse().unwrap()), None);
}

#[test]
fn an_invalid_packet_length_is_refused_and_writes_nothing() {
    let flow = flow(FLOW);
    for len in [0, 12, 15, 17, MAX_PACKET - 1, MAX_PACKET + 4] {
        let mut packet = std::vec![1; len];
        let error = LenError { len };
        assert_eq!(flow.seal(0, &mut packet), Err(error));
        assert_eq!(flow.check(0, &packet), Err(error.into()));
        assert_eq!(Icrc::new(&flow, 0, len, &[0; 12]).err(), Some(error));
        assert_eq!(flow.seal_run(len, &mut packet), Err(error));
        assert!(packet.iter().all(|byte| *byte == 1));
    }
    let mut run = [1; 64 + 12];
    assert_eq!(flow.seal_run(64, &mut run), Err(LenError { len: 12 }));
    assert_eq!(run, [1; 64 + 12]);
}

/// The constant stands for a local route header.
#[test]
fn the_constant_is_the_crc_of_eight_bytes_of_ones() {
    assert_eq!(AFTER_ONES, crc32fast::hash(&[0xff; 8]));
}

#[test]
fn what_routers_change_does_not_count() {
    let packet = [0x24; 32];
    let sockets = (FLOW.0.parse().unwrap(), FLOW.1.parse().unwrap());
    let one = datagram(sockets, Routed { id: 1, flags: 0x4000, varying: [0; 4] }, &packet);
    let two = datagram(sockets, Routed { id: 1, flags: 0x4000, varying: [9; 4] }, &packet);
    assert_ne!(one, two);
    assert_eq!(slow_icrc(&one), slow_icrc(&two));
}
