//! A message that is reserved, and committed some rounds of probes later, is the message that was written.
//!
//! Only on soft0: worlds make devices of their own.

use std::time::Duration;

use host::time;
use host::world::{self, Limits, Nature};
use rdma_conn::{
    BufferedRead, BufferedWrite, DirectRead, DirectWrite, Protocol, RecvHalf, Room, SendHalf,
    SendRecv, SharedWrite, device, join, receiver, send_recv,
};
use soft_rnic::{WorldDevice, WorldKind};

/// More than half of a round of probes (`Common::keepalive` is 1 s, and a round half of it).
const PAUSE: Duration = Duration::from_millis(400);

/// Messages behind others that were accepted, with rounds of probes before the room is taken, before
/// it is filled, and before it is committed.
fn each_arrives<P: Protocol>(config: P::Config)
where
    P::Config: Send + 'static,
{
    let (_, ended) = world::run(0, Nature::default(), Limits::default(), move || {
        let device = WorldDevice::new(WorldKind::Near);
        let opened = device::open(Some(device.name())).expect("a device");
        let mut inbox = receiver::<P>(&opened, &config, 1).expect("a receiver");
        let mut sender = join::<P>(&mut inbox, &opened, &opened, &config).expect("a sender");
        for pauses in 0..27 {
            let (before, within, after) = (pauses % 3, pauses / 3 % 3, pauses / 9);
            sender.try_send(b"one").expect("room for a message");
            time::sleep(before * PAUSE);
            let mut room = sender.try_reserve(5).expect("room for a message");
            time::sleep(within * PAUSE);
            room.write(0, b"hello").expect("room for five bytes");
            time::sleep(after * PAUSE);
            room.commit(5).expect("a connection");
            sender.flush().expect("a connection");
            for expected in [&b"one"[..], b"hello"] {
                let message = inbox.recv().expect("a message");
                assert_eq!(&*message, expected, "pauses {before}, {within}, {after}");
                inbox.free(message);
            }
        }
    });
    if let Err(failure) = ended {
        panic!("{}: {failure}", P::NAME);
    }
}

#[test]
fn a_packed_message_that_is_committed_late_is_what_was_written() {
    each_arrives::<SendRecv>(send_recv::Config { pack_bytes: 64, ..send_recv::Config::default() });
}

#[test]
fn a_message_that_is_committed_late_is_what_was_written() {
    each_arrives::<SendRecv>(send_recv::Config::default());
    each_arrives::<BufferedWrite>(Default::default());
    each_arrives::<DirectWrite>(Default::default());
    each_arrives::<SharedWrite>(Default::default());
    each_arrives::<DirectRead>(Default::default());
    each_arrives::<BufferedRead>(Default::default());
}
