// Dropping the message lets the slot be posted again, header and all.
fn header(message: verbs_safe::RecvBuf) -> [u8; 40] {
    let header = message.grh_bytes().unwrap();
    drop(message);
    *header
}

fn main() {}
