use super::*;

#[test]
fn values_come_in_order_and_a_dropped_sender_ends_them() {
    let (sender, receiver) = channel();
    assert_eq!(receiver.recv_timeout(Duration::ZERO), Err(RecvError::TimedOut));
    let send = move || (0..3).for_each(|n| sender.send(n).unwrap());
    let thread = crate::thread::spawn("sender", send).unwrap();
    assert_eq!([(); 3].map(|()| receiver.recv().unwrap()), [0, 1, 2]);
    assert_eq!(receiver.recv(), Err(RecvError::Closed));
    thread.join().unwrap();
}

#[test]
fn a_full_channel_holds_the_sender_until_there_is_room() {
    let (sender, receiver) = bounded(1);
    let send = move || (0..100).find_map(|n| sender.send(n).err());
    let thread = crate::thread::spawn("sender", send).unwrap();
    assert_eq!([(); 50].map(|()| receiver.recv().unwrap())[49], 49);
    assert!(receiver.0.state.lock().values.len() <= 1);
    drop(receiver);
    assert!(thread.join().unwrap().is_some(), "the last ones had no receiver");
}
