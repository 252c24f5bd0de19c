//! Changes of its port that a program learns of when looks at the interfaces find them.

use core::net::SocketAddr;

use verbs_sys::ibv_event_type as E;

use roce_core::icrc::{Checked, Flow};

use super::super::network_changes::{ChangeWatch, network_namespace, update};
use super::super::packets::renumber;
use super::*;
use crate::udp::{AddressState, PacketInbox, PacketOutbox, UdpPort};

const RUNNING: AddressState =
    AddressState::Present { is_running: true, mtu: Some(9_000), index: Some(2) };
const DOWN: AddressState =
    AddressState::Present { is_running: false, mtu: Some(1_500), index: Some(2) };

struct Watcher(*mut ibv_context);

impl Watcher {
    fn new(device: &Arc<Device>) -> Watcher {
        // SAFETY: the device is listed.
        let context = unsafe { (crate::table().open_device)(device.as_abi()) };
        // SAFETY: the context is open.
        let fd = unsafe { (*context).async_fd };
        // SAFETY: the context is open, and so is its descriptor `fd`, of which the flag is set.
        assert_eq!(unsafe { libc::fcntl(fd, libc::F_SETFL, libc::O_NONBLOCK) }, 0);
        Watcher(context)
    }

    /// All events that wait.
    fn events(&self) -> Vec<E> {
        let take = || {
            // SAFETY: zeroes are an event; the context is open.
            unsafe {
                let mut event: ibv_async_event = zeroed();
                let took = (crate::table().get_async_event)(self.0, &mut event) == 0;
                took.then(|| {
                    assert_eq!(event.element.port_num, 1);
                    event.event_type
                })
            }
        };
        core::iter::from_fn(take).collect()
    }

    /// Returns whether the port is active, its path MTU, and its GID.
    fn says(&self) -> (bool, u32, [u8; 16]) {
        let v = crate::table();
        // SAFETY: zeroes are attributes and a GID; the context is open.
        unsafe {
            let (mut attr, mut gid): (ibv_port_attr, ibv_gid) = zeroed();
            assert_eq!((v.query_port)(self.0, 1, (&raw mut attr).cast()), 0);
            assert_eq!((v.query_gid)(self.0, 1, 0, &mut gid), 0);
            let mut entry: ibv_gid_entry = zeroed();
            let size = size_of::<ibv_gid_entry>();
            let found = v.query_gid_ex.unwrap()(self.0, 1, 0, &mut entry, 0, size);
            assert_eq!(found, if gid.raw == [0; 16] { libc::ENODATA } else { 0 });
            assert_eq!(entry.gid.raw, gid.raw);
            (attr.state == ibv_port_state::IBV_PORT_ACTIVE, 128 << attr.active_mtu.0, gid.raw)
        }
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        // SAFETY: it is closed once.
        unsafe { (crate::table().close_device)(self.0) };
    }
}

/// A device that does not look for changes.
pub(super) fn unwatched(text: &str) -> Arc<Device> {
    let roce: Roce = text.parse().unwrap();
    let device = roce.open(&format!("roce:{text}")).unwrap();
    DEVICES.lock().push(Arc::clone(&device));
    device
}

#[test]
fn a_program_learns_what_happens_to_its_address() {
    let device = unwatched("127.0.0.152");
    let wire = device.wire().unwrap();
    let both = [Watcher::new(&device), Watcher::new(&device)];
    let gid = wire.gid;
    assert_eq!(both[0].says(), (true, 4_096, gid));
    for (found, events, says) in [
        (DOWN, vec![E::IBV_EVENT_PORT_ERR], (false, 1_024, gid)),
        (DOWN, vec![], (false, 1_024, gid)),
        (RUNNING, vec![E::IBV_EVENT_PORT_ACTIVE], (true, 4_096, gid)),
        (
            AddressState::Absent,
            vec![E::IBV_EVENT_GID_CHANGE, E::IBV_EVENT_PORT_ERR],
            (false, 4_096, [0; 16]),
        ),
        (RUNNING, vec![E::IBV_EVENT_GID_CHANGE, E::IBV_EVENT_PORT_ACTIVE], (true, 4_096, gid)),
    ] {
        update(&device, wire, found);
        for watcher in &both {
            assert_eq!(watcher.events(), events, "{found:?}");
            assert_eq!(watcher.says(), says, "{found:?}");
        }
    }
}

/// The messages say nothing of other network namespaces, and no thread can look there.
#[test]
fn a_port_in_another_network_namespace_stays_as_it_is() {
    let device = unwatched("127.0.0.157");
    let wire = device.wire().unwrap();
    let here = network_namespace();
    let there = here.map(|(device, file)| (device, file + 1));
    let seen = || format!("{:?}", wire.port_state);
    let unlisted = seen();
    ChangeWatch::new(1, there).unwrap().add(&device, wire);
    assert_eq!(seen(), unlisted);
    ChangeWatch::new(1, here).unwrap().add(&device, wire);
    assert_ne!(seen(), unlisted);
}

#[test]
fn a_program_that_takes_no_events_finds_the_last_ones() {
    let device = unwatched("127.0.0.153");
    let wire = device.wire().unwrap();
    let watcher = Watcher::new(&device);
    for _ in 0..100 {
        update(&device, wire, DOWN);
        update(&device, wire, RUNNING);
    }
    update(&device, wire, DOWN);
    let events = watcher.events();
    assert_eq!(events.len(), 64);
    assert_eq!(events.last(), Some(&E::IBV_EVENT_PORT_ERR));
    assert_eq!(events[62], E::IBV_EVENT_PORT_ACTIVE);
}

/// The refusals of the system while the network was away say nothing of the network that is back.
#[test]
fn runs_are_tried_again_when_the_network_is_back() {
    let device = unwatched("127.0.0.154");
    let wire = device.wire().unwrap();
    update(&device, wire, RUNNING);
    let to = SocketAddr::new("127.0.0.154".parse().unwrap(), 9);
    let push_two = || {
        let mut tx = wire.tx.lock();
        let mut push = || tx.push(to, Marks::default(), 1_000).unwrap().0;
        [push(), push()]
    };
    assert_eq!(push_two(), [0, 1]);
    // A socket without checksums can send no runs.
    let port = UdpPort::without_runs("127.0.0.154:0");
    assert_eq!(wire.tx.lock().send(&port), Ok(2));
    assert_eq!(push_two(), [0, 0]);
    assert_eq!(wire.tx.lock().send(&port), Ok(2));
    // A look that finds nothing new changes nothing, as after a change of another interface.
    update(&device, wire, RUNNING);
    assert_eq!(push_two(), [0, 0]);
    wire.flush(&mut wire.tx.lock());
    update(&device, wire, AddressState::Absent);
    assert_eq!(push_two(), [0, 0]);
    update(&device, wire, RUNNING);
    wire.flush(&mut wire.tx.lock());
    assert_eq!(push_two(), [0, 1]);
    wire.flush(&mut wire.tx.lock());
}

/// The ICRC covers the identification, which depends on the way that a packet is sent.
#[test]
fn packets_of_a_run_that_is_refused_have_fitting_checksums() {
    let [from, to] = [UdpPort::without_runs("127.0.0.154:0"), UdpPort::bind_any("127.0.0.154:0")];
    let flow = Flow::new(from.local(), to.local()).unwrap();
    let mut tx = PacketOutbox::new(true);
    for n in 0..3 {
        let (nth, packet) = tx.push(to.local(), Marks::default(), 64).unwrap();
        packet.fill(n);
        flow.seal(nth, packet).unwrap();
    }
    assert_eq!(tx.send_from(&from, &[], renumber), Ok(3));
    let (mut inbox, mut came) = (PacketInbox::default(), 0);
    while came < 3 {
        assert_eq!(to.wait(None, std::time::Duration::from_secs(30)), Ok(true));
        inbox.receive(&to).unwrap();
        for datagram in inbox.datagrams() {
            let checked = flow.check(0, datagram.bytes);
            assert_eq!(checked, Ok(Checked::V4 { id: 0, dont_fragment: true }));
            assert_eq!(datagram.bytes[0], came);
            came += 1;
        }
    }
}
