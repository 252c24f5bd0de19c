use std::{vec, vec::Vec};

use proptest::prelude::*;

use super::*;
use crate::headers::{DEFAULT_PKEY, Reth};
use crate::opcode::Opcode;
use crate::oracle::host::{BASE, Host, RKEY};
use crate::request::Operation;
use crate::responder::{Outcome, ReceiveDone};

const MTU: u32 = 256;
const FIRST: u32 = 0xff_fffe;
const CONFIG: Config =
    Config { mtu: MTU, dest_qpn: 4, pkey: DEFAULT_PKEY, first_psn: Psn::new(FIRST) };

/// A byte of a message.
fn byte(message: u64, at: u32) -> u8 {
    (message * 31 + u64::from(at) * 7 + u64::from(at / MTU)) as u8
}

struct UcEnds {
    sender: Sender,
    receiver: Receiver,
    host: Host,
    begun: u64,
}

impl UcEnds {
    fn new() -> Self {
        let (sender, receiver) = (Sender::new(CONFIG), Receiver::new(CONFIG));
        let host = Host { is_unreliable: true, ..Host::new() };
        Self { sender, receiver, host, begun: 0 }
    }

    /// The packets of a request, with their bytes.
    fn packets(&mut self, request: Request) -> Vec<(Outgoing, Vec<u8>)> {
        let message = self.begun;
        self.sender.begin(WqeIndex(message), request).expect("nothing is left of the last");
        self.begun += 1;
        core::iter::from_fn(|| self.sender.next_packet())
            .map(|packet| {
                let range = packet.offset..packet.offset + packet.length;
                (packet, range.map(|at| byte(message, at)).collect())
            })
            .collect()
    }

    fn take(&mut self, (packet, payload): &(Outgoing, Vec<u8>)) -> Outcome {
        self.receiver.on_request(&packet.headers, payload, &mut self.host)
    }

    fn take_all(&mut self, packets: &[(Outgoing, Vec<u8>)]) -> Vec<bool> {
        packets.iter().map(|packet| self.take(packet) == Outcome::Accepted).collect()
    }

    /// The lengths of what was received.
    fn lengths(&self) -> Vec<u32> {
        self.host.done.iter().map(|(done, _)| done.length).collect()
    }
}

fn send(length: u32) -> Request {
    Request::new(Operation::SendImm(length), length, 0, 0)
}

fn write(length: u32, kind: Operation) -> Request {
    Request::new(kind, length, BASE, RKEY)
}

#[test]
fn a_message_is_cut_and_put_together() {
    let mut end = UcEnds::new();
    end.host.receives = 3;
    let packets = end.packets(Request { is_solicited: true, ..send(2 * MTU + 3) });
    let opcodes: Vec<_> = packets.iter().map(|(packet, _)| packet.headers.bth.opcode).collect();
    let numbers: Vec<_> = packets.iter().map(|(packet, _)| packet.headers.bth.psn.get()).collect();
    assert_eq!(opcodes, [Opcode::UcSendFirst, Opcode::UcSendMiddle, Opcode::UcSendLastImm]);
    assert_eq!(numbers, [FIRST, FIRST + 1, 0]);
    assert!(packets.iter().all(|(packet, _)| !packet.headers.bth.ack_req));
    assert_eq!(end.take_all(&packets), [true; 3]);
    let (done, bytes) = end.host.done.pop_front().unwrap();
    let expected = ReceiveDone {
        length: 2 * MTU + 3,
        imm: Some(2 * MTU + 3),
        invalidated: None,
        is_solicited: true,
        is_write: false,
    };
    assert_eq!(done, expected);
    assert_eq!(bytes, (0..2 * MTU + 3).map(|at| byte(0, at)).collect::<Vec<_>>());
    let packets = end.packets(write(MTU + 1, Operation::WriteImm(9)));
    let reth = Some(Reth { va: BASE, rkey: RKEY, len: MTU + 1 });
    assert_eq!(packets[0].0.headers.reth, reth);
    assert_eq!(end.take_all(&packets), [true; 2]);
    assert!((0..=MTU).all(|at| end.host.memory[at as usize] == byte(1, at)));
    assert_eq!((end.lengths(), end.host.receives), (vec![MTU + 1], 1));
    let packets = end.packets(write(0, Operation::Write));
    assert_eq!(end.take_all(&packets), [true]);
    assert_eq!(end.host.receives, 1);
}

#[test]
fn a_message_of_which_a_packet_is_missing_is_dropped() {
    let mut end = UcEnds::new();
    end.host.receives = 1;
    for missing in 0..4 {
        let mut packets = end.packets(send(4 * MTU));
        packets.remove(missing);
        let taken = end.take_all(&packets);
        let before = (0..3).map(|at| at < missing).collect::<Vec<_>>();
        assert_eq!(taken, before, "what precedes it");
    }
    let packets = end.packets(send(7));
    assert_eq!(end.take_all(&packets), [true], "the receive request is still there");
    assert_eq!(end.lengths(), [7]);
}

#[test]
fn a_message_that_is_refused_is_dropped() {
    let mut end = UcEnds::new();
    let packets = end.packets(send(2 * MTU));
    let none = [Outcome::NotReady, Outcome::Dropped];
    assert_eq!([end.take(&packets[0]), end.take(&packets[1])], none, "there is no receive request");
    end.host.receives = 1;
    let packets = end.packets(send(9 * MTU));
    assert_eq!(end.take_all(&packets)[7..], [true, false], "it has room for eight packets");
    let mut bad_key = write(2 * MTU, Operation::Write);
    bad_key.rkey += 1;
    let packets = end.packets(bad_key);
    assert_eq!(end.take_all(&packets), [false; 2]);
    let mut lies = end.packets(write(2 * MTU, Operation::Write));
    lies[1].1.pop();
    assert_eq!(end.take_all(&lies), [true, false]);
    let mut short = end.packets(send(2 * MTU));
    short[0].1.pop();
    assert_eq!(end.take_all(&short), [false; 2]);
    let packets = end.packets(write(MTU + 1, Operation::WriteImm(1)));
    assert_eq!(end.take_all(&packets), [true; 2]);
    assert_eq!((end.lengths(), end.host.receives), (vec![MTU + 1], 0), "the one of the SEND");
    let packets = end.packets(write(1, Operation::WriteImm(1)));
    assert_eq!(end.take_all(&packets), [false]);
    let mut reliable = end.packets(write(1, Operation::Write));
    reliable[0].0.headers.bth.opcode = Opcode::RcWriteOnly;
    assert_eq!(end.take_all(&reliable), [false]);
}

#[test]
fn what_an_unreliable_connection_does_not_have_is_refused() {
    let mut sender = Sender::new(CONFIG);
    let mut begin = |request| sender.begin(WqeIndex(0), request);
    for kind in [Operation::Read, Operation::FetchAdd { add: 1 }, Operation::SendInv(1)] {
        assert_eq!(begin(Request::new(kind, 1, 0, 0)), Err(BeginError::Unsupported));
    }
    assert_eq!(begin(send(MAX_MESSAGE + 1)), Err(BeginError::TooLong(MAX_MESSAGE + 1)));
    assert_eq!(begin(send(1)), Ok(()));
    assert_eq!(begin(send(1)), Err(BeginError::Busy));
}

proptest! {
    /// No message is received in part, whichever packets are lost, copied or overtaken.
    #[test]
    fn what_is_received_was_sent(
        lengths in proptest::collection::vec(0..2048u32, 1..30),
        fates in proptest::collection::vec(0..30u8, 300),
    ) {
        let (mut end, mut fates) = (UcEnds::new(), fates.into_iter().cycle());
        end.host.receives = u32::MAX;
        let mut late = None;
        for &length in &lengths {
            for packet in end.packets(send(length)) {
                match fates.next() {
                    Some(0) => {}
                    Some(1) => _ = (end.take(&packet), end.take(&packet)),
                    Some(2) => late = Some(packet),
                    _ => _ = end.take(&packet),
                }
                if let Some(packet) = late.take_if(|_| fates.next() == Some(3)) {
                    end.take(&packet);
                }
            }
        }
        for (done, bytes) in &end.host.done {
            let sent = |message: &u64| {
                let length = lengths[*message as usize];
                let data = (0..length).map(|at| byte(*message, at));
                length == done.length && data.eq(bytes.iter().copied())
            };
            prop_assert!((0..lengths.len() as u64).any(|message| sent(&message)));
            prop_assert_eq!(done.imm, Some(done.length));
        }
    }
}
