//! Direct Read: messages without copies, and a receiver that decides what it reads.
//!
//! A sender offers registered buffers. With each request the receiver learns how long the
//! message is and what the sender's application says of it, here its name; it decides where
//! the message belongs, and its device reads it there, out of the sender's memory. When it
//! has been read, the sender has its buffer back. This program sends three things: one that
//! is read into a buffer, one that lands in a file, and one that is not wanted.
//!
//! ```text
//! cargo run --example direct_read
//! RDMA_CONN_DEVICE=mlx5_0 cargo run --release --example direct_read
//! ```

use std::error::Error;
use std::fs::File;
use std::os::unix::fs::FileExt;

use rdma_conn::device::{self, Device};
use rdma_conn::direct_read::{
    AckMode, Buffer, BufferConfig, Config, Listener, Outcome, Receiver, RecvError, Refusal, Sender,
    connect,
};
use rdma_conn::{OfferedMessage, ZeroCopyRecv, ZeroCopySend};

/// Bytes of a message: long ones are what this connection is for.
const BYTES: usize = 1 << 20;

type Result<T = (), E = Box<dyn Error + Send + Sync>> = std::result::Result<T, E>;

pub(crate) fn main() -> Result {
    let device = device::of_environment()?;
    // The sender's settings say how a message is acknowledged: here by a WRITE of one byte
    // when its READ has completed. `FencedWrite` does not wait for that, but READs behind a
    // fence do not overlap; `Cumulative` is one WRITE for many messages.
    let config = Config { ack: AckMode::Write, window: 8, ..Config::default() };

    // The ends find each other by TCP, and could be two machines.
    let listener = Listener::bind("127.0.0.1:0")?;
    let address = listener.local_addr();
    std::thread::scope(|scope| {
        let receiving = scope.spawn(|| {
            let receiver = listener.next()?.accept_receiver(&device, &config)?;
            receive(receiver, &device)
        });
        send(connect(address, &device, &config)?, &device)?;
        receiving.join().expect("the receiver has not panicked")
    })
}

fn send(mut sender: Sender, device: &Device) -> Result {
    let mut tickets = Vec::new();
    for (name, fill) in [("for memory", 1), ("for the disk", 2), ("an advertisement", 3)] {
        // A buffer belongs to the owner of the value: as long as a message is offered, that
        // is the sender, and no other code can change it.
        let mut buffer = device.pd().register_buffer(BYTES, BufferConfig::READABLE)?;
        buffer.fill(fill);
        tickets.push(sender.offer(buffer, name.as_bytes()).map_err(|e| e.error)?);
    }
    for (ticket, wanted) in tickets.into_iter().zip([true, true, false]) {
        // Here it is again, to be filled anew.
        let sent = sender.wait_sent(ticket)?;
        println!("{:?}: the buffer is back", sent.outcome);
        let expected = if wanted { Outcome::Read } else { Outcome::Refused(Refusal::NotWanted) };
        assert_eq!((sent.outcome, sent.buffer.len()), (expected, BYTES));
    }
    sender.close_and_take()?;
    Ok(())
}

fn receive(mut receiver: Receiver, device: &Device) -> Result {
    // Registering takes long: a buffer is made once, and used again and again.
    let mut buffer = device.pd().register_buffer(BYTES, BufferConfig::default())?;
    loop {
        let request = match receiver.next_request() {
            Ok(request) => request,
            Err(RecvError::Closed) => return Ok(()),
            Err(e) => return Err(e.into()),
        };
        // Nothing has been read yet. What is dropped undecided stays the oldest request.
        match request.app() {
            b"for memory" => {
                let reading = request.read_into(buffer).map_err(|e| e.error)?;
                // Any number of messages can be under way; this program waits for each.
                let message = receiver.wait(reading)?;
                assert!(message.len() == BYTES && message.iter().all(|byte| *byte == 1));
                buffer = message.into_buffer();
            }
            b"for the disk" => buffer = save(&mut receiver, device, buffer)?,
            _ => request.refuse(),
        }
    }
}

/// Reads a message into a file: straight into it, where the device takes its memory.
fn save(receiver: &mut Receiver, device: &Device, buffer: Buffer) -> Result<Buffer> {
    let path = std::env::temp_dir().join(format!("direct-read-{}", std::process::id()));
    let file = File::options().read(true).write(true).create_new(true).open(&path)?;
    std::fs::remove_file(&path)?;
    file.set_len(BYTES as u64)?;
    let request = receiver.next_request()?;
    let buffer = match device.pd().register_file(&file, 0, BYTES) {
        Ok(region) => {
            // No slice shows the memory of a file, to which others may write: what is in it
            // is found out by reading it.
            let reading = request.read_into_file(region).map_err(|e| e.error)?;
            receiver.wait_file(reading)?;
            buffer
        }
        // A kernel lets no device have the pages of a file on a disk for long.
        Err(why) => {
            println!("through a buffer: {why}");
            let reading = request.read_into(buffer).map_err(|e| e.error)?;
            let message = receiver.wait(reading)?;
            file.write_all_at(&message, 0)?;
            message.into_buffer()
        }
    };
    let mut bytes = vec![0; BYTES];
    file.read_exact_at(&mut bytes, 0)?;
    assert!(bytes.iter().all(|byte| *byte == 2));
    Ok(buffer)
}
