//! Connections that have their memory on demand, to others that have theirs pinned.
//!
//! Shows: one protocol.

mod support;

use rdma_conn::device::Device;
use rdma_conn::{
    BufferedRead, BufferedWrite, DirectRead, DirectWrite, Protocol, RecvHalf, SendHalf, SendRecv,
    SharedWrite,
};
use support::{bounded, config, device};

/// Messages through a connection from one handle of a device to another.
fn messages<P: Protocol>(sends: &Device, receives: &Device) {
    let (mut near, mut far) = rdma_conn::pair::<P>(sends, receives, &config()).unwrap();
    for n in 0..100_u8 {
        near.sender.send(&[n; 300]).unwrap();
        assert_eq!(&*far.receiver.recv().unwrap(), [n; 300]);
    }
}

fn messages_of_all(sends: &Device, receives: &Device) {
    messages::<SendRecv>(sends, receives);
    messages::<BufferedRead>(sends, receives);
    messages::<BufferedWrite>(sends, receives);
    messages::<SharedWrite>(sends, receives);
    messages::<DirectRead>(sends, receives);
    messages::<DirectWrite>(sends, receives);
}

#[test]
fn every_protocol_works_with_memory_on_demand() {
    bounded(|| {
        let pinned = device();
        let odp = pinned.context().attr().unwrap().odp;
        match pinned.on_demand() {
            Ok(paged) => {
                messages_of_all(&paged, &paged);
                messages_of_all(&paged, &pinned);
                messages_of_all(&pinned, &paged);
            }
            Err(e) => {
                let has_all = odp.supported && odp.send && odp.recv && odp.srq_recv;
                assert!(!(has_all && odp.read && odp.write && odp.atomic), "{odp:?}: {e}");
                assert!(e.to_string().contains("on-demand paging"), "{e}");
            }
        }
    });
}
