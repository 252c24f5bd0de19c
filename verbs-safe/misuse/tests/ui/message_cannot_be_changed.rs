// Pieces of a message share its bytes.
fn change(message: &mut verbs_safe::RecvBuf) {
    message[0] = 1;
}

fn main() {}
