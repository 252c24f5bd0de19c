//! A task that waits for a message sleeps: it is polled at its looks, if no event tells of a message, and not without
//! a pause.
//!
//! Only on soft0: worlds make devices of their own.

use std::pin::pin;
use std::time::Duration;

use host::future::block_on;
use host::world::{self, Limits, Nature};
use host::{thread, time};
use rdma_conn::{
    BufferedRead, BufferedWrite, DirectRead, DirectWrite, Protocol, SendHalf, SendRecv,
    SharedWrite, aio, device, join, receiver,
};
use soft_rnic::{WorldDevice, WorldKind};

/// Time in which nothing arrives.
const WAITS: Duration = Duration::from_millis(300);
/// Time between two looks (`Arm::Poll`).
const LOOK: Duration = Duration::from_micros(200);
/// Polls before the first of these looks: a few, and the shorter sleeps that follow them.
const FIRST: u128 = 100;
/// No keepalive wakes the task.
const NEVER: Duration = Duration::from_secs(86_400);

fn sleeps<P: Protocol>() {
    let (_, ended) = world::run(0, Nature::default(), Limits::default(), || {
        let device = WorldDevice::new(WorldKind::Near);
        let opened = device::open(Some(device.name())).expect("a device");
        let mut config = P::Config::default();
        config.as_mut().keepalive = NEVER;
        let mut inbox = receiver::<P>(&opened, &config, 1).expect("a receiver");
        let mut sender = join::<P>(&mut inbox, &opened, &opened, &config).expect("a sender");
        let sends = move || {
            time::sleep(WAITS);
            sender.send(b"at last").expect("a peer");
            sender.flush().expect("a peer");
            sender
        };
        let sending = thread::spawn("sender", sends).expect("a thread");
        let (mut receiver, mut polls) = (aio::Receiver::new(inbox), 0);
        let received = {
            let mut receiving = pin!(receiver.recv());
            let counted = std::future::poll_fn(|cx| {
                polls += 1;
                receiving.as_mut().poll(cx)
            });
            block_on(counted, None).expect("descriptors").expect("no deadline")
        };
        assert_eq!(&*received.expect("a message"), b"at last");
        // One that polls has some hundred times as many.
        let most = 2 * WAITS.as_nanos() / LOOK.as_nanos() + FIRST;
        assert!(polls < most, "polled {polls} times, of {most}");
        sending.join().expect("no panic").abort();
        receiver.abort();
    });
    if let Err(failure) = ended {
        panic!("{}: {failure}", P::NAME);
    }
}

#[test]
fn a_task_that_waits_sleeps() {
    sleeps::<SendRecv>();
    sleeps::<BufferedRead>();
    sleeps::<BufferedWrite>();
    sleeps::<DirectRead>();
    sleeps::<DirectWrite>();
    sleeps::<SharedWrite>();
}
