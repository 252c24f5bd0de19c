use super::*;

#[test]
fn a_copy_of_which_messages_are_held_is_not_written_to() {
    let mut chunks = CopyPool::new();
    chunks.hold(100);
    let mut held = Vec::new();
    for round in 0..3 * CopyPool::KEPT as u8 {
        chunks.open()[..4].fill(round);
        held.push(chunks.message(0, 4, Peer(0)).unwrap());
    }
    for (round, message) in held.iter().enumerate() {
        assert_eq!(**message, [round as u8; 4]);
    }
    assert_eq!(chunks.all.len(), CopyPool::KEPT, "the others go with their messages");
    held.clear();
    let before = chunks.open().as_ptr();
    assert_eq!(chunks.open().as_ptr(), before, "a free one is used again");
}
