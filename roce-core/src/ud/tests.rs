use super::*;
use crate::headers::DEFAULT_PKEY;
use crate::oracle::host::Host;

fn datagram(length: u32, imm: Option<u32>) -> Datagram {
    Datagram { length, imm, is_solicited: true, dest_qpn: 3, qkey: 0x11 }
}

#[test]
fn a_datagram_is_one_packet() {
    let mut sender = Sender::new(256, 8, DEFAULT_PKEY, Psn::new(0xff_ffff));
    let mut receiver = Receiver::new();
    let mut host = Host::new();
    host.receives = 1;
    for (imm, opcode, psn) in
        [(None, Opcode::UdSendOnly, 0xff_ffff), (Some(5), Opcode::UdSendOnlyImm, 0)]
    {
        let packet = sender.packet(WqeIndex(1), datagram(5, imm)).unwrap();
        let headers = packet.headers;
        assert_eq!((headers.bth.opcode, headers.bth.psn.get()), (opcode, psn));
        assert_eq!((headers.bth.dest_qpn, headers.bth.pad), (3, 3));
        assert_eq!(headers.deth, Some(Deth { qkey: 0x11, src_qpn: 8 }));
        assert_eq!((packet.offset, packet.length), (0, 5));
        host.receives = 1;
        assert_eq!(receiver.on_request(&headers, &[7; 5], &mut host), Outcome::Accepted);
        let (done, bytes) = host.done.pop_front().unwrap();
        assert_eq!((done.length, done.imm, done.is_solicited), (5, imm, true));
        assert_eq!(bytes, [7; 5]);
    }
}

#[test]
fn a_datagram_that_is_too_long_is_not_sent() {
    let mut sender = Sender::new(256, 8, DEFAULT_PKEY, Psn::new(0));
    let before = sender.clone();
    let error = TooLong { length: 257, mtu: 256 };
    assert_eq!(sender.packet(WqeIndex(0), datagram(257, None)), Err(error));
    assert_eq!(sender, before);
    assert!(sender.packet(WqeIndex(0), datagram(256, None)).is_ok());
}

#[test]
fn a_receive_request_serves_the_next_datagram_that_fits() {
    let mut sender = Sender::new(4096, 8, DEFAULT_PKEY, Psn::new(0));
    let (mut receiver, mut host) = (Receiver::new(), Host::new());
    let headers = sender.packet(WqeIndex(0), datagram(1, None)).unwrap().headers;
    assert_eq!(receiver.on_request(&headers, &[1], &mut host), Outcome::NotReady, "there is none");
    host.receives = 1;
    assert_eq!(receiver.on_request(&headers, &[1; 2049], &mut host), Outcome::Dropped);
    assert_eq!((host.receives, host.done.len()), (0, 0));
    assert_eq!(receiver.on_request(&headers, &[1; 2048], &mut host), Outcome::Accepted);
    assert_eq!(receiver.on_request(&headers, &[1], &mut host), Outcome::NotReady);
    let mut reliable = headers;
    reliable.bth.opcode = Opcode::RcSendOnly;
    host.receives = 1;
    assert_eq!(receiver.on_request(&reliable, &[1], &mut host), Outcome::Dropped);
    assert_eq!(host.receives, 1);
}
