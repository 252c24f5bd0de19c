// A buffer that a request lands in is the queue's.
use verbs_safe::{Buffer, SendQueue};

fn look(send: &mut SendQueue, buffer: Buffer) -> u8 {
    let _ = send.lend(buffer);
    buffer[0]
}

fn main() {}
