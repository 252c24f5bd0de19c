//! A key of another connection's memory opens nothing: hostile ends, made by hand, that write
//! with a key which they have guessed.
//!
//! Shows: hostile peers.

mod support;

use std::os::unix::net::UnixStream;

use rdma_conn::device::Device;
use rdma_conn::send_recv::{Config, Reposting, SharedConfig, SharedPool};
use rdma_conn::verbs_safe::{Mapping, RemoteAccess, SharedRegion, SharedRegionConfig, WcStatus};
use rdma_conn::{Listener, SendRecv, connect_sender_over, receiver_shared};
use support::raw::{HandMadeEnd, Shape, receiver_for, sender_to};
use support::{bounded, device, small};

/// Memory that the program has registered for another peer to write to.
fn memory(device: &Device) -> SharedRegion {
    let config = SharedRegionConfig { access: RemoteAccess::ALL, on_demand: false };
    device.pd().register_shared(Mapping::new(4096).unwrap(), config).unwrap()
}

/// Writes with the key of memory that is none of its connection.
fn is_kept_out(mut hostile: HandMadeEnd, device: &Device) {
    let memory = memory(device);
    hostile.write(b"", memory.remote(0, 0).unwrap());
    assert_eq!(hostile.drain(), [WcStatus::SUCCESS], "whether the peer is there may be asked");
    hostile.write(b"a guess!", memory.remote(0, 8).unwrap());
    assert_eq!(hostile.drain()[1..], [WcStatus::REM_ACCESS]);
    assert_eq!(memory.load_u64(0), Ok(0));
}

fn a_sender_is_kept_out(device: &Device, config: &Config, pool: Option<&SharedPool>) {
    let mut victim = receiver_shared::<SendRecv>(device, config, 1, pool).unwrap();
    let listener = Listener::<SendRecv>::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr();
    let hostile = std::thread::scope(|scope| {
        let hostile = scope.spawn(|| sender_to(address, device, Shape::default()));
        listener.next().unwrap().accept_into_shared(&mut victim, pool, device, config).unwrap();
        hostile.join().unwrap()
    });
    is_kept_out(hostile, device);
}

#[test]
fn senders_of_messages_write_to_no_memory() {
    bounded(|| {
        let (device, config) = (device(), small(4));
        a_sender_is_kept_out(&device, &config, None);
        let sizes = SharedConfig {
            buffers: 8,
            buffer_bytes: 64,
            max_peers: 1,
            reposting: Reposting::Combining,
            repost_batch: 1,
        };
        let pool = SharedPool::new(&device, sizes).unwrap();
        a_sender_is_kept_out(&device, &config, Some(&pool));
    });
}

#[test]
fn receivers_of_messages_write_to_no_memory() {
    bounded(|| {
        let (device, config) = (device(), small(4));
        let (mut near, mut far) = UnixStream::pair().unwrap();
        let (_victim, hostile) = std::thread::scope(|scope| {
            let hostile = scope.spawn(|| receiver_for(&mut far, &device, Shape::default()));
            let victim =
                connect_sender_over::<SendRecv, _>(&mut near, &device, &config, b"").unwrap();
            (victim, hostile.join().unwrap())
        });
        is_kept_out(hostile, &device);
    });
}
