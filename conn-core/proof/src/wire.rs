//! roce-core: a packet from headers to bytes and back.

use roce_core::{
    UDP_PORT, codec,
    headers::{Bth, Headers, Reth},
    icrc::{Checked, Flow},
    lengths::{ICRC, MAX_HEADERS, padding_of},
    opcode::Opcode,
    psn::Psn,
};

const PAYLOAD: &[u8] = b"hello";

pub(crate) fn a_packet_goes_over_the_wire() -> Option<bool> {
    let flow = Flow::new(([10, 0, 0, 1], 49_152).into(), ([10, 0, 0, 2], UDP_PORT).into())?;
    let mut bth = Bth::new(Opcode::RcWriteOnly, 17, Psn::new(0x00ff_ffff));
    bth.pad = padding_of(PAYLOAD.len());
    let mut headers = Headers::new(bth);
    headers.reth = Some(Reth { va: 4096, rkey: 1, len: 5 });

    let mut packet = [0; MAX_HEADERS + PAYLOAD.len() + 3 + ICRC];
    let start = codec::write(&headers, packet.first_chunk_mut()?).ok()?;
    let end = start + PAYLOAD.len();
    packet.get_mut(start..end)?.copy_from_slice(PAYLOAD);
    let packet = packet.get_mut(..end + usize::from(bth.pad) + ICRC)?;
    flow.seal(7, packet).ok()?;

    let checked = flow.check(0, packet).ok()?;
    let received = codec::parse(packet).ok()?;
    let whole = received.headers == headers && received.payload == PAYLOAD;
    *packet.get_mut(start)? ^= 1;
    let fails = flow.check(0, packet).is_err();
    Some(whole && fails && checked == Checked::V4 { id: 7, dont_fragment: true })
}
