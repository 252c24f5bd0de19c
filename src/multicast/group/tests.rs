use conn_core::multicast::RepairHeader;

use super::*;
use crate::multicast::{Buffer, Config, in_process};

fn member() -> Group {
    let device = crate::device::soft().expect("a device");
    let config = Config { members: 4, ..Config::default() };
    in_process(&device, &config).expect("a group").swap_remove(0)
}

#[test]
fn a_repair_for_fewer_survivors_leaves_the_last_one_alone() {
    let mut member = member();
    let suspects = Members::NONE.with(Rank(3));
    let repair = |suspected, number| {
        let (of, position) = (Rank(3), 0);
        RepairHeader { of, position, len: 64, turns: 1, number, suspected }
    };
    let (first, second) = (repair(suspects, 1), repair(suspects.with(Rank(2)), 2));
    let at = [first, second].map(|repair| member.fill_repair(repair));
    for (at, repair) in at.into_iter().zip([first, second]) {
        let mut header = [0; RepairHeader::BYTES];
        member.repair.copy_out(at, &mut header).expect("inside");
        let words: Vec<u8> = repair.words().iter().flat_map(|w| w.to_le_bytes()).collect();
        assert_eq!(header[..], words);
    }
}

#[test]
fn a_member_that_is_cut_off_does_not_hold_up_the_others() {
    let mut member = member();
    let peer = member.peers[1].as_mut().expect("a peer");
    while peer.has_room() {
        peer.write_row(0, &[0; 4], false).expect("it has room");
    }
    assert!(!member.all_have_room());
    member.machine.unreachable(Rank(1));
    assert!(member.all_have_room());
}

/// Reports whether `wake` ends the sleep of the thread that drives a member.
fn is_woken(wake: impl FnOnce(&Sender)) -> bool {
    let member = member();
    let (slots, sender) = (member.slots.clone(), member.sender());
    let (tell, told) = std::sync::mpsc::channel();
    let driving = std::thread::spawn(move || {
        member.driven_here();
        tell.send(()).expect("a listener");
        // For ever, as far as a test can tell.
        member.slots.sleep(member.looked, Duration::from_secs(86_400));
        tell.send(()).expect("a listener");
    });
    let limit = Duration::from_secs(60);
    told.recv_timeout(limit).expect("it drives");
    wake(&sender);
    let is_woken = told.recv_timeout(limit).is_ok();
    slots.interrupt();
    driving.join().expect("no panic");
    is_woken
}

#[test]
fn who_sends_or_flushes_or_ends_wakes_the_thread_that_drives() {
    assert!(is_woken(|sender| assert!(sender.flush().is_ok())));
    assert!(is_woken(|sender| assert!(sender.try_send(b"at once").is_ok())));
    assert!(is_woken(|sender| assert!(sender.get_buffer(8).map(Buffer::send).is_ok())));
    assert!(is_woken(Sender::end));
}
