//! RDMA tutorial, example 2: an echo by RDMA WRITE, found by polling memory.
//!
//! WRITE has *memory semantics*: the sender puts the message where it wants to, in memory
//! that the receiver has registered for that; the receiver is not told. It finds the
//! message by looking at its memory: all messages are `AA…A`, and one has arrived when its
//! *first and its last* byte are `A`. After that the place is reset, for the next one.
//!
//! That the last byte is written last is a promise of some devices only
//! (`ibv_query_qp_data_in_order`); with the others, use write-with-immediate.
//!
//! ```text
//! cargo run --example write_polling
//! ```

use rdma_conn::device;
use verbs_safe::{
    CqConfig, Mapping, ProtectionDomain, QueuePairConfig, RemoteAccess, RemoteSpan, SendOp,
    SendQueue, SharedRegion, SharedRegionConfig,
};

mod support;

use support::{Completions, Result, connect, wait_until};

const MESSAGE_BYTES: usize = 64;
const MESSAGES: u64 = 1000;
/// Requests in a send queue.
const DEPTH: u32 = 16;
/// One in this number of sends is signalled: completions of sends are of no interest here,
/// but one has to be taken now and then, or the send queue is full for ever.
const SIGNAL_EVERY: u64 = 8;

/// One end: what it writes with, and the memory that its peer writes to.
struct PollingEnd {
    send: SendQueue,
    completions: Completions,
    memory: SharedRegion,
    /// Memory that messages to the peer go to: the two things that SEND does not need, an address
    /// and its key.
    remote: RemoteSpan,
}

pub(crate) fn main() -> Result {
    let device = device::of_environment()?;
    let (context, pd) = (device.context(), device.pd());
    let (server_cq, client_cq) =
        (context.create_cq(CqConfig::new(DEPTH))?, context.create_cq(CqConfig::new(DEPTH))?);
    let config = |cq| QueuePairConfig {
        max_send_wr: DEPTH,
        send_slots: DEPTH,
        send_slot_bytes: MESSAGE_BYTES,
        access: RemoteAccess { write: true, ..RemoteAccess::NONE },
        ..QueuePairConfig::new(cq, cq)
    };
    let server = pd.create_qp(&config(&server_cq), ())?;
    let client = pd.create_qp(&config(&client_cq), ())?;
    connect(&server.control, &client.control)?;
    if !server.control.data_in_order() {
        println!("{} does not promise to deliver in order; assuming it", device.name());
    }

    let (at_server, at_client) = (memory(pd)?, memory(pd)?);
    let to_server = at_server.remote(0, MESSAGE_BYTES)?;
    let to_client = at_client.remote(0, MESSAGE_BYTES)?;
    let end = |send, cq: &_, memory, remote| PollingEnd {
        send,
        completions: Completions::new(cq),
        memory,
        remote,
    };
    let mut server = end(server.send, &server_cq, at_server, to_client);
    let mut client = end(client.send, &client_cq, at_client, to_server);
    std::thread::scope(|scope| {
        let serving = scope.spawn(move || {
            for number in 1..=MESSAGES {
                server.wait_for_message()?;
                server.write(number)?;
            }
            server.finish()
        });
        for number in 1..=MESSAGES {
            client.write(number)?;
            client.wait_for_message()?;
        }
        serving.join().unwrap_or_else(|_| Err("the server panicked".into()))
    })?;
    println!("{}: {MESSAGES} messages of {MESSAGE_BYTES} B echoed", device.name());
    Ok(())
}

/// Memory that a peer may write to at any time. It is never lent as a slice; one copies
/// from it, or looks at single bytes.
fn memory(pd: &ProtectionDomain) -> Result<SharedRegion> {
    let access = RemoteAccess { write: true, ..RemoteAccess::NONE };
    let config = SharedRegionConfig { access, on_demand: false };
    Ok(pd.register_shared(Mapping::new(MESSAGE_BYTES)?, config)?)
}

impl PollingEnd {
    /// Writes `AA…A` to the peer's memory.
    fn write(&mut self, number: u64) -> Result {
        self.make_room()?;
        self.send.next_slot().ok_or("there is room")?.fill(b'A');
        let op = SendOp::Write { len: MESSAGE_BYTES as u32, remote: self.remote };
        let signalled = number.is_multiple_of(SIGNAL_EVERY) || number == MESSAGES;
        self.send.stage(op, signalled)?;
        self.send.post()?;
        Ok(())
    }

    /// One completion stands for all requests before it, signalled or not.
    fn make_room(&mut self) -> Result {
        while self.send.staged_total() - self.send.retired_total() >= u64::from(DEPTH) {
            self.completions.wait(|completion| Ok(self.send.retire(&completion).map(drop)?))?;
        }
        Ok(())
    }

    /// Until *both* ends of the message are there. (With `||` in place of the `&&` the
    /// loop would end when one of them is, in the middle of a message.)
    fn wait_for_message(&mut self) -> Result {
        wait_until(|| {
            let (first, last) =
                (self.memory.observe_byte(0)?, self.memory.observe_byte(MESSAGE_BYTES - 1)?);
            Ok(first == b'A' && last == b'A')
        })?;
        let mut message = [0; MESSAGE_BYTES];
        self.memory.copy_out(0, &mut message)?;
        if message != [b'A'; MESSAGE_BYTES] {
            return Err("a message with other bytes than were sent".into());
        }
        // Before the answer: the peer's next message may arrive as soon as it is sent.
        Ok(self.memory.fill(0, MESSAGE_BYTES, 0)?)
    }

    /// Waits until all that was written has been acknowledged.
    fn finish(&mut self) -> Result {
        while self.send.retired_total() < MESSAGES {
            self.completions.wait(|completion| Ok(self.send.retire(&completion).map(drop)?))?;
        }
        Ok(())
    }
}
