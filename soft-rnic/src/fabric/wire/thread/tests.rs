use super::*;
use crate::objects::device::DEVICES;

#[test]
fn a_process_lingers_longer_on_a_lossy_network() {
    let quiet = |met: fn(&PacketCounts) -> &core::sync::atomic::AtomicU64| {
        let counts = PacketCounts::default();
        met(&counts).store(1, Ordering::Relaxed);
        quiet_ns(&counts)
    };
    assert_eq!(quiet_ns(&PacketCounts::default()), LINGER_NS);
    assert_eq!(quiet(|counts| &counts.received), LINGER_NS);
    assert_eq!(quiet(|counts| &counts.duplicates), LINGER_LOSSY_NS);
    assert_eq!(quiet(|counts| &counts.out_of_sequence), LINGER_LOSSY_NS);
    // Longer than the timeout of code 14.
    assert!(LINGER_LOSSY_NS > 2 * (4_096 << 14) && LONGEST.as_nanos() as u64 > LINGER_LOSSY_NS);
}

/// A peer may ask again and again.
#[test]
fn a_process_that_exits_answers_peers_for_no_longer_than_it_may() {
    let name = "127.0.0.184".parse::<crate::Roce>().unwrap().list().unwrap();
    let device = DEVICES.lock().iter().find(|device| device.name() == name).cloned().unwrap();
    let wire = device.wire().unwrap();
    // It would wait for ever.
    wire.answered_ns.store(u64::MAX, Ordering::Relaxed);
    linger(&device, wire);
}

/// Another thread may have it locked: neither the thread that exits nor the device's needs it.
#[test]
fn a_process_that_exits_does_not_wait_for_the_list_of_devices() {
    let devices = ["127.0.0.155", "127.0.0.156"].map(|ip| {
        let name = ip.parse::<crate::Roce>().unwrap().list().unwrap();
        let device = DEVICES.lock().iter().find(|device| device.name() == name).cloned();
        device.inspect(Device::start_wire_thread).unwrap()
    });
    let is_one = |it: &Threaded| devices.iter().any(|device| Arc::ptr_eq(device, &it.device));
    let is_done =
        |device: &Arc<Device>| device.wire().unwrap().exit.is_done.load(Ordering::Acquire);
    let _list = DEVICES.lock();
    // A thread that needs the list waits for it before it is asked for the second time.
    for _ in 0..2 {
        let exits = devices.iter().map(|device| &device.wire().unwrap().exit);
        exits.for_each(|exit| exit.is_done.store(false, Ordering::Relaxed));
        // One call may give up on a machine that is busy.
        let begun = clock::now();
        while !devices.iter().all(is_done) && clock::now() - begun < 30_000_000_000 {
            settle_all(is_one);
        }
        assert!(devices.iter().all(is_done));
    }
}
