// Dropping the message lets the slot be posted again.
fn bytes(message: verbs_safe::RecvBuf) -> &'static [u8] {
    let bytes: &[u8] = &message;
    drop(message);
    bytes
}

fn main() {}
