//! RDMA tutorial, practical considerations: RDMA WRITE with immediate.
//!
//! Polling memory (`write_polling`) takes a byte that no message ends with, a reset after
//! each one, a device that delivers in order, and with hundreds of peers hundreds of places
//! to look at. A WRITE with immediate takes none of that: it completes a receive at the
//! target, which is found by polling one completion queue for all peers, and its immediate
//! can carry the length.
//!
//! ```text
//! cargo run --example write_imm
//! ```

use rdma_conn::device;
use verbs_safe::{
    CqConfig, Mapping, QueuePairConfig, RecvQueue, RecvSide, RemoteAccess, RemoteSpan, SendOp,
    SendQueue, SharedRegion, SharedRegionConfig,
};

mod support;

use support::{Completions, Result, connect};

const CLIENTS: usize = 3;
const MESSAGES_EACH: u64 = 200;
/// Bytes of the place that a client's messages go to: each client has its own.
const PLACE_BYTES: usize = 1024;

/// The queue pair of a client, and its place.
struct Client {
    send: SendQueue,
    completions: Completions,
    remote: RemoteSpan,
}

pub(crate) fn main() -> Result {
    let device = device::of_environment()?;
    let (context, pd) = (device.context(), device.pd());
    let access = RemoteAccess { write: true, ..RemoteAccess::NONE };
    let memory = Mapping::new(CLIENTS * PLACE_BYTES)?;
    let memory = pd.register_shared(memory, SharedRegionConfig { access, on_demand: false })?;
    let server_cq = context.create_cq(CqConfig::new(2 * CLIENTS as u32))?;

    let (mut recvs, mut clients) = (Vec::new(), Vec::new());
    for rank in 0..CLIENTS {
        // Its receives have no bytes: the message is elsewhere.
        let server = QueuePairConfig {
            access,
            max_send_wr: 1,
            send_slots: 0,
            recv: RecvSide::Own { slots: 1, slot_bytes: 0 },
            ..QueuePairConfig::new(&server_cq, &server_cq)
        };
        let cq = context.create_cq(CqConfig::new(1))?;
        let client = QueuePairConfig {
            max_send_wr: 1,
            send_slots: 1,
            send_slot_bytes: PLACE_BYTES,
            ..QueuePairConfig::new(&cq, &cq)
        };
        let (server, client) = (pd.create_qp(&server, ())?, pd.create_qp(&client, ())?);
        connect(&server.control, &client.control)?;
        let mut recv = server.recv.ok_or("it was made with receives")?;
        recv.post(&[0])?;
        recvs.push(recv);
        let remote = memory.remote(rank * PLACE_BYTES, PLACE_BYTES)?;
        clients.push(Client { send: client.send, completions: Completions::new(&cq), remote });
    }

    let bytes = std::thread::scope(|scope| {
        let serving = scope.spawn(move || serve(recvs, &memory, Completions::new(&server_cq)));
        for number in 0..MESSAGES_EACH {
            for (rank, client) in clients.iter_mut().enumerate() {
                client.write(&content(rank, number))?;
            }
        }
        serving.join().unwrap_or_else(|_| Err("the server panicked".into()))
    })?;
    println!(
        "{}: {CLIENTS} clients wrote {MESSAGES_EACH} messages each, {bytes} bytes, and each told \
         its length",
        device.name()
    );
    Ok(())
}

impl Client {
    /// Writes a message into the client's place, and waits until it is there. The
    /// server's receive is what tells it: while none is posted, the device waits (RNR).
    fn write(&mut self, message: &[u8]) -> Result {
        let len = message.len() as u32;
        let slot = self.send.next_slot().ok_or("the last one has completed")?;
        slot[..message.len()].copy_from_slice(message);
        self.send.stage(SendOp::WriteImm { len, imm: len, remote: self.remote }, true)?;
        self.send.post()?;
        self.completions.wait(|completion| Ok(self.send.retire(&completion).map(drop)?))
    }
}

/// Takes all messages; the bytes that they had together.
///
/// A receive is posted again when its message has been read: so a client cannot overwrite
/// an unread message. (The device may have written the beginning of the next one, if that
/// has more than one packet; these do not.)
fn serve(
    mut recvs: Vec<RecvQueue<()>>,
    memory: &SharedRegion,
    mut completions: Completions,
) -> Result<usize> {
    let (mut received, mut bytes) = ([0; CLIENTS], 0);
    let mut message = [0; PLACE_BYTES];
    while received != [MESSAGES_EACH; CLIENTS] {
        completions.wait(|completion| {
            let rank = recvs.iter().position(|r| r.queue_id() == completion.queue_id());
            let rank = rank.ok_or("a completion of another queue")?;
            let length = completion.imm().ok_or("it has an immediate")? as usize;
            let message = message.get_mut(..length).ok_or("longer than its place")?;
            memory.copy_out(rank * PLACE_BYTES, message)?;
            if message != content(rank, received[rank]) {
                return Err(format!("client {rank} did not write this").into());
            }
            received[rank] += 1;
            bytes += length;
            let buffer = recvs[rank].take(completion)?;
            let slot = recvs[rank].reclaim(buffer).ok_or("it is still held")?;
            Ok(recvs[rank].post(&[slot])?)
        })?;
    }
    Ok(bytes)
}

/// Returns the bytes of message `number` of a client: messages have all lengths.
fn content(rank: usize, number: u64) -> Vec<u8> {
    vec![(number + 1) as u8; (rank * 101 + number as usize * 3) % (PLACE_BYTES + 1)]
}
