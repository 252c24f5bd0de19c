//! roce-core: the ends of a reliable connection, which lose their first packet; an unreliable
//! connection, and a datagram.

use roce_core::{
    headers::{DEFAULT_PKEY, RnrTimer},
    psn::Psn,
    request::{Operation, Request, WqeIndex},
    requester::{CompletionStatus, Received, Requester, RequesterConfig, SendSlot},
    responder::{
        Access, AccessError, AtomicOp, Outcome, ReceiveDone, ReceiveFault, Refusal, Responder,
        ResponderConfig, ResponseSlot, Target,
    },
    uc, ud,
};

const MTU: usize = 256;
const KEY: u32 = 7;

/// Memory at address 0, and one buffer that is always posted.
struct NodeMemory {
    bytes: [u8; 1024],
    buffer: [u8; 1024],
    received: u32,
    payload: [u8; MTU],
}

impl NodeMemory {
    const fn new() -> Self {
        Self { bytes: [1; 1024], buffer: [0; 1024], received: 0, payload: [0; MTU] }
    }

    fn range(&mut self, rkey: u32, va: u64, length: usize) -> Result<&mut [u8], Refusal> {
        let start = usize::try_from(va).map_err(|_| Refusal::Access)?;
        let end = start.checked_add(length).filter(|_| rkey == KEY).ok_or(Refusal::Access)?;
        self.bytes.get_mut(start..end).ok_or(Refusal::Access)
    }
}

impl Target for NodeMemory {
    fn take_receive(&mut self) -> Option<u32> {
        Some(self.buffer.len() as u32)
    }

    fn place(&mut self, offset: u32, payload: &[u8]) -> Result<(), AccessError> {
        let start = offset as usize;
        let place = self.buffer.get_mut(start..start + payload.len()).ok_or(Refusal::Access)?;
        place.copy_from_slice(payload);
        Ok(())
    }

    fn complete_receive(&mut self, done: ReceiveDone) {
        self.received += done.length;
    }

    fn fail_receive(&mut self, _: ReceiveFault) {}

    fn check(&mut self, _: Access, rkey: u32, va: u64, length: u32) -> Result<(), AccessError> {
        self.range(rkey, va, length as usize)?;
        Ok(())
    }

    fn write(&mut self, rkey: u32, va: u64, payload: &[u8]) -> Result<(), AccessError> {
        self.range(rkey, va, payload.len())?.copy_from_slice(payload);
        Ok(())
    }

    fn read(&mut self, rkey: u32, va: u64, length: u32) -> Result<(), AccessError> {
        let mut payload = [0; MTU];
        let bytes = self.range(rkey, va, length as usize)?;
        payload.get_mut(..bytes.len()).ok_or(Refusal::Operation)?.copy_from_slice(bytes);
        self.payload = payload;
        Ok(())
    }

    fn atomic(&mut self, rkey: u32, va: u64, op: AtomicOp) -> Result<u64, AccessError> {
        let word = self.range(rkey, va, 8)?.first_chunk_mut().ok_or(Refusal::Access)?;
        let before = u64::from_le_bytes(*word);
        if let AtomicOp::FetchAdd { add } = op {
            *word = before.wrapping_add(add).to_le_bytes();
        }
        Ok(before)
    }

    fn atomic_write(&mut self, rkey: u32, va: u64, bytes: [u8; 8]) -> Result<(), AccessError> {
        self.write(rkey, va, &bytes)
    }

    fn invalidate(&mut self, _: u32) -> Result<(), Refusal> {
        Err(Refusal::Access)
    }
}

const FIRST: Psn = Psn::new(0x00ff_ffff);

fn ends() -> Option<(Requester<[SendSlot; 4]>, Responder<[ResponseSlot; 2]>)> {
    let requests = RequesterConfig {
        mtu: MTU as u32,
        dest_qpn: 2,
        pkey: DEFAULT_PKEY,
        first_psn: FIRST,
        timeout: 1,
        retry_cnt: 1,
        rnr_retry: 0,
        max_rd_atomic: 2,
        max_window: 8,
        read_packets: 2,
    };
    let responds = ResponderConfig {
        mtu: MTU as u32,
        dest_qpn: 1,
        pkey: DEFAULT_PKEY,
        first_psn: FIRST,
        min_rnr_timer: RnrTimer::new(1)?,
    };
    let requester = Requester::new([SendSlot::new(); 4], requests).ok()?;
    Some((requester, Responder::new([ResponseSlot::new(); 2], responds).ok()?))
}

/// SEND, WRITE, READ and an atomic; the first packet is lost, and sent again after the timeout.
pub(crate) fn requests_complete_in_spite_of_a_loss() -> Option<bool> {
    let (mut requester, mut responder) = ends()?;
    let mut memory = NodeMemory::new();
    let data = [3; 600];
    for (kind, length) in [
        (Operation::Send, 600),
        (Operation::Write, 300),
        (Operation::Read, 600),
        (Operation::FetchAdd { add: 1 }, 0),
    ] {
        requester.post(Request::new(kind, length, 0, KEY)).ok()?;
    }
    let (mut read, mut found) = (0, 0);
    requester.next_packet(0)?;
    let now_ns = requester.deadline_ns()?;
    requester.on_timer(now_ns);
    for _ in 0..20 {
        while let Some(packet) = requester.next_packet(now_ns) {
            let start = packet.offset as usize;
            let payload = data.get(start..start + packet.length as usize)?;
            responder.on_request(&packet.headers, payload, &mut memory);
        }
        while let Some(response) = responder.next_response(&mut memory) {
            match requester.on_response(&response.headers, response.length, now_ns) {
                Received::Place { length, .. } => read += length,
                Received::Original { value, .. } => found = value,
                Received::Ignored | Received::Noted => {}
            }
        }
    }
    let statuses = core::iter::from_fn(|| requester.next_completion()).map(|done| done.status);
    let is_complete = statuses.eq([CompletionStatus::Success; 4]);
    let is_there = memory.received == 600 && memory.buffer.starts_with(&data);
    Some(is_complete && is_there && read == 600 && found == u64::from_le_bytes([3; 8]))
}

/// A message of an unreliable connection, and a datagram.
pub(crate) fn unreliable_messages_are_received() -> Option<bool> {
    let config = uc::Config { mtu: MTU as u32, dest_qpn: 2, pkey: DEFAULT_PKEY, first_psn: FIRST };
    let (mut sender, mut receiver) = (uc::Sender::new(config), uc::Receiver::new(config));
    let (mut memory, data) = (NodeMemory::new(), [4; MTU]);
    sender.begin(WqeIndex(0), Request::new(Operation::Send, 300, 0, 0)).ok()?;
    while let Some(packet) = sender.next_packet() {
        let payload = data.get(..packet.length as usize)?;
        receiver.on_request(&packet.headers, payload, &mut memory);
    }
    let mut sender = ud::Sender::new(MTU as u32, 1, DEFAULT_PKEY, FIRST);
    let datagram = ud::Datagram { length: 5, imm: None, is_solicited: false, dest_qpn: 2, qkey: 3 };
    let packet = sender.packet(WqeIndex(0), datagram).ok()?;
    let outcome = ud::Receiver::new().on_request(&packet.headers, data.get(..5)?, &mut memory);
    Some(outcome == Outcome::Accepted && memory.received == 305)
}
