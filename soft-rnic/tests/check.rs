//! Checked processes: what each scene does wrong, and what is reported; of the right program
//! nothing is.
//!
//! A scene is played by this program, started again; it ends, and has written its report to
//! standard error.
//!
//! Only on soft0: soft0 checks its scenes.

mod common;

use common::checked::*;
use common::multicast::{GroupMember, attach, detach, group};
use common::other::*;
use common::pages::*;
use common::xrc::{close_xrcd, create_recv, open_xrcd};
use common::*;
use soft_rnic::check::{STATUS, VARIABLE};
use verbs_sys::ibv_wr_opcode as W;
use verbs_sys::*;

/// Names of the scenes, and their functions.
const SCENES: &[(&str, fn())] = &[
    ("reuse", reuse),
    ("distant", reuse_at_a_distance),
    ("batch", reuse_of_a_batch),
    ("unpolled", change_before_poll),
    ("receive", write_to_a_posted_receive),
    ("arrived", change_what_arrived),
    ("deregister", deregister_early),
    ("waiting", deregister_while_waiting),
    ("flushed", deregister_after_an_error),
    ("unmapped", unmap_while_waiting),
    ("protected", post_what_is_protected),
    ("refused", post_where_the_system_refuses_a_look),
    ("lkey", wrong_lkey),
    ("range", beyond_the_region),
    ("buffer", receive_beyond_the_region),
    ("rkey", wrong_rkey),
    ("right", missing_right),
    ("reset", posts_in_reset),
    ("ready", no_receive_request),
    ("unsignaled", never_signaled),
    ("domain", domain_in_use),
    ("used", given_up_in_use),
    ("requests", requests_that_are_refused),
    ("batches", batches_that_are_refused),
    ("mask", incomplete_transitions),
    ("overrun", overrun),
    ("leak", leak),
    ("overflow", overflow),
    ("short", too_short),
    ("long", too_short_for_packets),
    ("unreliable", too_short_twice),
    ("immediate", receive_without_a_message),
    ("datagram", datagram_too_long),
    ("overlap", overlapping_receives),
    ("clean", clean),
    ("remote", remote_writes),
    ("twice", remote_writes_by_another_key),
    ("on demand", messages_out_of_on_demand_memory),
    ("shared", shared_receives),
    ("ack", never_acknowledged),
    ("fork", fork),
];

/// Scenes of which [`mistake`] makes a right program.
const MISTAKES: &[&str] = &[
    "unpolled",
    "deregister",
    "lkey",
    "range",
    "rkey",
    "right",
    "reset",
    "ready",
    "unsignaled",
    "domain",
    "overrun",
    "short",
];
/// The variable of a scene that is to be played without its mistake.
const RIGHT: &str = "SCENE_IS_RIGHT";

/// A value that a program has wrong, or the one that is right.
fn mistake<T>(wrong: T, right: T) -> T {
    if std::env::var_os(RIGHT).is_some() { right } else { wrong }
}

#[test]
fn a_mistake_is_found_and_nothing_in_the_program_without_it() {
    for (scene, device) in MISTAKES.iter().flat_map(|scene| DEVICES.map(|device| (*scene, device)))
    {
        let lines = report_on(device, scene);
        assert!(lines[0].starts_with("finding: "), "{scene} on {device}: {lines:?}");
        let environment = [(VARIABLE, "report"), ("RDMA_CONN_DEVICE", device), (RIGHT, "1")];
        assert_eq!(
            report_with(scene, &environment),
            ["0 findings, 0 notes"],
            "{scene} on {device}"
        );
    }
}

#[test]
fn the_other_process() {
    let Some(scene) = role() else { return };
    let found = SCENES.iter().find(|(name, _)| *name == scene);
    found.unwrap_or_else(|| panic!("{scene}")).1();
}

const WIRED: &str = "roce:127.31.9.1,loopback=wire";
/// In one process on soft0, and over the network.
const DEVICES: [&str; 2] = ["soft0", WIRED];

/// Returns the reports of a scene, without the number of the process.
fn report_on(device: &str, scene: &str) -> Vec<String> {
    report_with(scene, &[(VARIABLE, "report"), ("RDMA_CONN_DEVICE", device)])
}

/// [`report_on`] each device.
fn reports(scene: &str) -> [(&'static str, Vec<String>); 2] {
    DEVICES.map(|device| (device, report_on(device, scene)))
}

/// [`report_on`] soft0, of what it alone has.
fn report(scene: &str) -> Vec<String> {
    report_on("soft0", scene)
}

/// [`report`], where requests take the way to another process.
fn report_apart(scene: &str) -> Vec<String> {
    report_with(scene, &[(VARIABLE, "report"), ("SOFT_RNIC_APART", "1")])
}

fn report_with(scene: &str, environment: &[(&str, &str)]) -> Vec<String> {
    let output = play("the_other_process", scene, environment);
    assert!(output.status.success(), "{output:?}");
    lines(&output)
}

/// Waits until a receiver has answered that it has no receive request. On soft0 that is within the
/// post.
fn has_been_refused() {
    while soft_rnic::counters_of(&provider().1).unwrap().rnr_naks == 0 {
        std::thread::yield_now();
    }
}

/// The SEND waits for a receive request when its buffer is changed.
fn reuse() {
    let ends = CheckedEnds::patient();
    ends.send(7, 1000, SIGNALED);
    has_been_refused();
    if !is_wired() {
        // What it has changed back is as it was. (Over the network it may be sent again in
        // between.)
        (0..2).for_each(|_| ends.change(0, 900));
    }
    ends.change(0, 130);
    ends.receive(1, 0, 4096);
    assert_eq!((ends.poll(0).status, ends.poll(1).status), ("SUCCESS", "SUCCESS"));
    ends.close();
}

#[test]
fn a_buffer_that_is_used_again_before_its_execution_is_found() {
    for (device, lines) in reports("reuse") {
        let begins = "finding: the buffer of SEND wr_id 0x7 on QP 0x";
        let ends = match device {
            // It was sent, found no receive request, and is sent again.
            WIRED => {
                "was changed before a packet of it was sent again: within bytes 128..192, at 0x"
            }
            _ => "was changed between its post and its execution: within bytes 128..192, at 0x",
        };
        assert_line(&lines[0], begins, ends);
        assert_eq!(lines[1..], ["1 finding, 0 notes"]);
    }
}

fn reuse_at_a_distance() {
    // The byte changes within half of it.
    let name = soft_rnic::distant(std::time::Duration::from_secs(4));
    let ends = CheckedEnds::connect(ibv_qp_type::IBV_QPT_RC, &name, 16);
    ends.receive(1, 0, 4096);
    ends.send(7, 64, SIGNALED);
    ends.change(0, 0);
    assert_eq!((ends.poll(0).status, ends.poll(1).status), ("SUCCESS", "SUCCESS"));
    ends.close();
}

#[test]
fn a_buffer_that_is_used_again_under_way_is_found() {
    let lines = report("distant");
    assert_line(&lines[0], "finding: the buffer of SEND", "between its post and its execution");
    assert_eq!(lines[1..], ["1 finding, 0 notes"]);
}

/// [`reuse`], posted by the newer interface.
fn reuse_of_a_batch() {
    let ends = CheckedEnds::new();
    let mut attr: ibv_qp_init_attr_ex = ibv_qp_init_attr_ex {
        qp_type: ibv_qp_type::IBV_QPT_RC,
        // SAFETY: zero is a valid value of every field.
        ..unsafe { core::mem::zeroed() }
    };
    (attr.send_cq, attr.recv_cq, attr.pd) = (ends.cq[0], ends.cq[0], ends.net.pd);
    (attr.cap.max_send_wr, attr.cap.max_recv_wr, attr.cap.max_send_sge) = (2, 1, 1);
    attr.comp_mask = ibv_qp_init_attr_mask::IBV_QP_INIT_ATTR_PD.0
        | ibv_qp_init_attr_mask::IBV_QP_INIT_ATTR_SEND_OPS_FLAGS.0;
    attr.send_ops_flags = u64::from(ibv_qp_create_send_ops_flags::IBV_QP_EX_WITH_SEND.0);
    let config = ConnectConfig { min_rnr_timer: 31, ..ConnectConfig::PATIENT };
    // SAFETY: objects of this test; the functions are those of the newer interface.
    unsafe {
        let qp = (later(ends.net.ctx).create_qp_ex.unwrap())(ends.net.ctx, &mut attr);
        assert_eq!(ends.net.to_state(ends.qp[1], ibv_qp_state::IBV_QPS_RESET), 0);
        ends.net.connect(ends.qp[1], (*qp).qp_num, config);
        ends.net.connect(qp, (*ends.qp[1]).qp_num, config);
        let ex = soft_rnic::qp_to_qp_ex(qp);
        ((*ex).wr_start.unwrap())(ex);
        ((*ex).wr_id, (*ex).wr_flags) = (7, SIGNALED.0);
        ((*ex).wr_send.unwrap())(ex);
        ((*ex).wr_set_sge.unwrap())(ex, (*ends.mr[0]).lkey, ends.buf[0].as_ptr() as u64, 64);
        assert_eq!(((*ex).wr_complete.unwrap())(ex), 0);
        has_been_refused();
        ends.change(0, 0);
        ends.receive(1, 0, 64);
        assert_eq!((ends.poll(0).status, ends.poll(1).status), ("SUCCESS", "SUCCESS"));
        ends.net.destroy_qp(qp);
    }
    ends.close();
}

#[test]
fn a_buffer_of_a_batch_that_is_used_again_is_found() {
    for (device, lines) in reports("batch") {
        let begins = "finding: the buffer of SEND wr_id 0x7 on QP 0x";
        let ends = match device {
            WIRED => "was changed before a packet of it was sent again",
            _ => "was changed between its post and its execution",
        };
        assert_line(&lines[0], begins, ends);
        assert_eq!(lines[1..], ["1 finding, 0 notes"]);
    }
}

fn change_before_poll() {
    let ends = CheckedEnds::new();
    ends.receive(1, 0, 64);
    ends.receive(2, 64, 64);
    // It is known to be done when the next one is.
    ends.send(7, 64, UNSIGNALED);
    ends.send(8, 64, SIGNALED);
    if mistake(true, false) {
        ends.change(0, 1);
    }
    let _ = [ends.poll(0), ends.poll(1), ends.poll(1)];
    // Now it may.
    ends.change(0, 2);
    ends.close();
}

#[test]
fn a_buffer_changed_before_its_completion_is_polled_is_found() {
    for (device, lines) in reports("unpolled") {
        let ends = match device {
            // Where the acknowledgement takes long, it is sent again.
            WIRED => "within bytes 0..64, at",
            _ => "was changed before its completion was polled: within bytes 0..64, at",
        };
        for (line, id) in lines.iter().zip([7, 8]) {
            let begins = format!("finding: the buffer of SEND wr_id {id:#x} on QP 0x");
            assert_line(line, &begins, ends);
        }
        assert_eq!(lines[2..], ["2 findings, 0 notes"]);
    }
}

fn write_to_a_posted_receive() {
    let ends = CheckedEnds::new();
    ends.receive(3, 100, 1000);
    ends.change(1, 1099);
    // The next one is not changed.
    ends.receive(4, 2000, 1000);
    ends.send(7, 10, SIGNALED);
    ends.send(8, 10, SIGNALED);
    let _ = [ends.poll(0), ends.poll(0), ends.poll(1), ends.poll(1)];
    ends.close();
}

#[test]
fn a_write_to_a_posted_receive_is_found() {
    for (_, lines) in reports("receive") {
        let begins = "finding: the buffer of RECV wr_id 0x3 on QP 0x";
        assert_line(
            &lines[0],
            begins,
            "was written to while it was posted: within bytes 960..1000, at",
        );
        assert_eq!(lines[1..], ["1 finding, 0 notes"]);
    }
}

fn change_what_arrived() {
    let ends = CheckedEnds::new();
    ends.receive(3, 0, 4096);
    ends.send(7, 100, SIGNALED);
    // What is acknowledged has arrived.
    let _ = ends.poll(0);
    // What is behind the message is the program's own business.
    ends.change(1, 100);
    let _ = ends.poll(1);
    ends.receive(4, 0, 4096);
    ends.send(8, 100, SIGNALED);
    let _ = ends.poll(0);
    ends.change(1, 99);
    let _ = ends.poll(1);
    ends.close();
}

#[test]
fn a_message_that_changes_before_it_is_polled_is_found() {
    for (_, lines) in reports("arrived") {
        let begins = "finding: the buffer of RECV wr_id 0x4 on QP 0x";
        let ends = "between the arrival of its message and the poll of its completion: within bytes 64..100";
        assert_line(&lines[0], begins, ends);
        assert_eq!(lines[1..], ["1 finding, 0 notes"]);
    }
}

fn deregister_early() {
    let ends = CheckedEnds::new();
    ends.receive(1, 0, 64);
    ends.send(7, 64, SIGNALED);
    let is_early = mistake(true, false);
    if is_early {
        ends.net.dereg(ends.mr[0]);
    }
    let _ = [ends.poll(0), ends.poll(1)];
    for end in [0, 1] {
        ends.net.destroy_qp(ends.qp[end]);
        ends.net.destroy_cq(ends.cq[end]);
    }
    if !is_early {
        ends.net.dereg(ends.mr[0]);
    }
    ends.net.dereg(ends.mr[1]);
    ends.net.close();
}

#[test]
fn a_region_that_goes_before_the_completion_is_polled_is_found() {
    for (_, lines) in reports("deregister") {
        let begins = "finding: the buffer of SEND wr_id 0x7 on QP 0x";
        assert_line(&lines[0], begins, "was deregistered before its completion was polled");
        assert_eq!(lines[1..], ["1 finding, 0 notes"]);
    }
}

/// Nothing of this has executed: what was posted waits for its peer.
fn deregister_while_waiting() {
    let ends = CheckedEnds::new();
    for id in [7, 8] {
        ends.send(id, 64, SIGNALED);
    }
    // It goes inline, or was copied: nothing of the region is read later.
    ends.send(9, 8, SIGNALED | ibv_send_flags::IBV_SEND_INLINE);
    ends.net.dereg(ends.mr[0]);
    for end in [0, 1] {
        ends.net.destroy_qp(ends.qp[end]);
    }
    let qp = ends.net.qp(ends.cq[1]);
    // SAFETY: it is alive.
    ends.net.connect(qp, unsafe { (*qp).qp_num }, ConnectConfig::default());
    assert_eq!(post_recv(qp, 3, &mut [sge(ends.mr[1], 0, 64)]), 0);
    ends.net.dereg(ends.mr[1]);
    ends.net.destroy_qp(qp);
    ends.cq.into_iter().for_each(|cq| ends.net.destroy_cq(cq));
    ends.net.close();
}

#[test]
fn a_region_that_goes_while_a_request_waits_is_found() {
    for (_, lines) in reports("waiting") {
        let ends = "was deregistered before its completion was polled";
        assert_line(&lines[0], "finding: the buffer of SEND wr_id 0x7 on QP 0x", ends);
        assert!(lines[0].contains(" (and of 1 more) "), "{lines:?}");
        assert_line(&lines[1], "finding: the buffer of RECV wr_id 0x3 on QP 0x", ends);
        assert_eq!(lines[2..], ["2 findings, 0 notes"]);
    }
}

/// The queue pair has failed, and accesses nothing any more.
fn deregister_after_an_error() {
    let ends = CheckedEnds::new();
    ends.receive(1, 0, 64);
    assert_eq!(ends.net.to_state(ends.qp[1], ibv_qp_state::IBV_QPS_ERR), 0);
    ends.send(7, 64, SIGNALED);
    assert_eq!(ends.net.to_state(ends.qp[0], ibv_qp_state::IBV_QPS_ERR), 0);
    ends.mr.into_iter().for_each(|mr| ends.net.dereg(mr));
    for end in [0, 1] {
        ends.net.destroy_qp(ends.qp[end]);
        ends.net.destroy_cq(ends.cq[end]);
    }
    ends.net.close();
}

#[test]
fn a_region_deregistered_after_a_failure_is_no_finding() {
    for (_, lines) in reports("flushed") {
        assert!(lines.iter().all(|line| !line.starts_with("finding")), "{lines:?}");
    }
}

/// Waits until the receiver has refused that many messages more.
fn is_refused_again(times: u64) {
    let naks = || soft_rnic::counters_of(&provider().1).unwrap().rnr_naks;
    let before = naks();
    while naks() < before + times {
        std::thread::yield_now();
    }
}

/// The pages of a posted buffer go while its request waits for a receive request.
fn unmap_while_waiting() {
    let ends = CheckedEnds::new();
    let pages = MappedPages::new(3);
    pages.fill(0, 3 * PAGE, 1);
    let mr = register(&ends.net, (pages.addr(0), 3 * PAGE), LOCAL).unwrap();
    let mut sges = [piece(&pages, mr, 0, 3 * PAGE as u32)];
    let mut wr = send_wr(7, W::IBV_WR_SEND, &mut sges, SIGNALED);
    assert_eq!(post_send(ends.qp[0], &mut wr), 0);
    has_been_refused();
    pages.unmap(1);
    // A try that was under way had looked before.
    is_refused_again(2);
    close_with(ends, mr);
}

/// Gives up what is posted, with a region of its buffers.
fn close_with(ends: CheckedEnds, mr: *mut ibv_mr) {
    ends.qp.into_iter().for_each(|qp| ends.net.destroy_qp(qp));
    ends.cq.into_iter().for_each(|cq| ends.net.destroy_cq(cq));
    [mr].into_iter().chain(ends.mr).for_each(|mr| ends.net.dereg(mr));
    ends.net.close();
}

#[test]
fn a_buffer_that_is_unmapped_while_posted_is_found() {
    let lines = report("unmapped");
    let ends = "is not mapped, or protected, while it is posted: within bytes 4096..8192, at 0x";
    assert_line(&lines[0], "finding: the buffer of SEND wr_id 0x7 on QP 0x", ends);
    assert_eq!(lines[1..], ["1 finding, 0 notes"]);
}

/// Nothing takes the requests: without the check, nothing would look at their buffers.
fn post_what_is_protected() {
    let ends = CheckedEnds::new();
    let pages = MappedPages::new(2);
    let mr = register(&ends.net, (pages.addr(0), 2 * PAGE), LOCAL).unwrap();
    pages.protect(0, libc::PROT_NONE);
    pages.unmap(1);
    let receive = &mut [piece(&pages, mr, PAGE, 64)];
    assert_eq!(post_recv(ends.qp[0], 3, receive), 0);
    let mut sges = [piece(&pages, mr, 0, 64)];
    let mut wr = send_wr(7, W::IBV_WR_SEND, &mut sges, SIGNALED);
    assert_eq!(post_send(ends.qp[0], &mut wr), 0);
    close_with(ends, mr);
}

#[test]
fn a_buffer_that_is_protected_when_it_is_posted_is_found() {
    let lines = report("protected");
    let ends = "is not mapped, or protected, while it is posted: within bytes 0..64, at 0x";
    assert_line(&lines[0], "finding: the buffer of RECV wr_id 0x3 on QP 0x", ends);
    assert_line(&lines[1], "finding: the buffer of SEND wr_id 0x7 on QP 0x", ends);
    assert_eq!(lines[2..], ["2 findings, 0 notes"]);
}

fn post_where_the_system_refuses_a_look() {
    refuse(&[libc::SYS_process_vm_writev]);
    post_what_is_protected();
}

/// Without the kernel's help a look could crash the program.
#[test]
fn what_cannot_be_looked_at_safely_is_not_compared() {
    let lines = report("refused");
    assert_line(&lines[0], "buffers are not compared: process_vm_writev is refused: ", "");
    assert_eq!(lines[1..], ["0 findings, 0 notes"]);
}

fn wrong_lkey() {
    let ends = CheckedEnds::new();
    let mut sges = [sge(ends.mr[0], 0, 64)];
    sges[0].lkey ^= mistake(0x1234, 0);
    send_from(ends, &mut sges, ("LOC_PROT", 1));
}

/// Sends what lies there to a receive request; how it fails, if there is a mistake.
fn send_from(ends: CheckedEnds, sges: &mut [ibv_sge], failed: (&str, u32)) {
    ends.receive(3, 0, 64);
    assert_eq!(post_send(ends.qp[0], &mut send_wr(7, W::IBV_WR_SEND, sges, SIGNALED)), 0);
    let wc = ends.poll(0);
    assert_eq!((wc.status, wc.vendor_err), mistake(failed, ("SUCCESS", 0)));
    if mistake(false, true) {
        assert_eq!(ends.poll(1).status, "SUCCESS");
    }
    ends.close();
}

#[test]
fn a_wrong_lkey_is_found_and_the_regions_that_there_are() {
    for (_, lines) in reports("lkey") {
        let begins = "finding: ibv_post_send: SEND wr_id 0x7 on QP 0x";
        assert_line(&lines[0], begins, " failed with LOC_PROT: lkey 0x");
        assert_line(&lines[0], begins, " is that of no region: the protection domain of QP 0x");
        assert_eq!(lines[0].matches("(4096 bytes at 0x").count(), 2, "{lines:?}");
        assert_eq!(lines[1..], ["1 finding, 0 notes"]);
    }
}

fn beyond_the_region() {
    let ends = CheckedEnds::new();
    let mut sges = [sge(ends.mr[0], mistake(4090, 4032), 64)];
    send_from(ends, &mut sges, ("LOC_PROT", 3));
}

#[test]
fn a_buffer_beyond_its_region_is_found() {
    for (_, lines) in reports("range") {
        assert_line(&lines[0], "finding: ibv_post_send: SEND wr_id 0x7", ": 64 bytes at 0x");
        assert_line(&lines[0], "finding: ", " are not all in key 0x");
        assert_eq!(lines[1..], ["1 finding, 0 notes"]);
    }
}

fn receive_beyond_the_region() {
    let ends = CheckedEnds::new();
    ends.receive(3, 4090, 64);
    ends.send(7, 64, SIGNALED);
    let wcs = [ends.poll(0), ends.poll(1)].map(|wc| (wc.status, wc.vendor_err));
    let theirs = if is_wired() { 58 } else { 56 };
    assert_eq!(wcs, [("REM_OP", theirs), ("LOC_PROT", 3)]);
    ends.close();
}

#[test]
fn a_receive_buffer_beyond_its_region_is_found() {
    for (_, lines) in reports("buffer") {
        let begins = "finding: ibv_post_recv: RECV wr_id 0x3 on QP 0x";
        assert_line(&lines[0], begins, " failed with LOC_PROT: 64 bytes at 0x");
        assert_eq!(lines[1..], ["1 finding, 0 notes"]);
    }
}

/// Writes to memory of the other end with these rights, by its key and a change of that; the number
/// of the reason why it fails, if there is a mistake.
fn write_to_the_peer(rights: u32, change: u32, reason: u32) {
    let ends = CheckedEnds::new();
    let mut memory = [0; 64];
    let to = ends.net.mr(&mut memory, rights);
    let mut sges = [sge(ends.mr[0], 0, 64)];
    let mut wr = send_wr(7, W::IBV_WR_RDMA_WRITE, &mut sges, SIGNALED);
    // SAFETY: the region is alive.
    (wr.wr.rdma.remote_addr, wr.wr.rdma.rkey) = unsafe { ((*to).addr as u64, (*to).rkey ^ change) };
    assert_eq!(post_send(ends.qp[0], &mut wr), 0);
    let wc = ends.poll(0);
    let failed = ("REM_ACCESS", or_of_a_nak(reason));
    assert_eq!((wc.status, wc.vendor_err), mistake(failed, ("SUCCESS", 0)));
    ends.net.dereg(to);
    ends.close();
}

/// Over the network, what a NAK says.
fn or_of_a_nak(number: u32) -> u32 {
    if is_wired() { 54 } else { number }
}

fn wrong_rkey() {
    write_to_the_peer(RW, mistake(0x1234, 0), 48);
}

fn missing_right() {
    write_to_the_peer(mistake(LOCAL, RW), 0, 51);
}

/// It is said at the end that knows the regions, once.
#[test]
fn a_wrong_rkey_or_a_missing_right_is_found() {
    for scene in ["rkey", "right"] {
        for (device, lines) in reports(scene) {
            let begins = match device {
                WIRED => "finding: QP 0x",
                _ => "finding: ibv_post_send: WRITE wr_id 0x7 on QP 0x",
            };
            let ends = match scene {
                "rkey" => "is that of no region: the protection domain of QP 0x",
                _ => ", LOCAL_WRITE) lacks REMOTE_WRITE: register it with that right",
            };
            assert_line(&lines[0], begins, ends);
            assert_eq!(lines[1..], ["1 finding, 0 notes"]);
        }
    }
}

fn posts_in_reset() {
    let ends = CheckedEnds::new();
    let qp = ends.net.qp(ends.cq[0]);
    if mistake(false, true) {
        // SAFETY: it is alive.
        ends.net.connect(qp, unsafe { (*qp).qp_num }, ConnectConfig::LIVING);
    }
    let refused = mistake(libc::EINVAL, 0);
    assert_eq!(post_recv(qp, 3, &mut [sge(ends.mr[0], 64, 64)]), refused);
    let mut sges = [sge(ends.mr[0], 0, 64)];
    assert_eq!(post_send(qp, &mut send_wr(7, W::IBV_WR_SEND, &mut sges, SIGNALED)), refused);
    (0..mistake(0, 2)).for_each(|_| assert_eq!(ends.poll(0).status, "SUCCESS"));
    ends.net.destroy_qp(qp);
    ends.close();
}

#[test]
fn a_post_in_reset_is_found() {
    for (_, lines) in reports("reset") {
        let right = "is refused (EINVAL): the queue pair is in RESET: it takes ";
        assert_line(&lines[0], "finding: ibv_post_recv: RECV wr_id 0x3 on QP 0x", right);
        assert_line(&lines[0], "finding: ", "receive requests from INIT on");
        assert_line(&lines[1], "finding: ibv_post_send: SEND wr_id 0x7 on QP 0x", right);
        assert_line(&lines[1], "finding: ", "send requests from RTS on");
        assert_eq!(lines[2..], ["2 findings, 0 notes"]);
    }
}

fn no_receive_request() {
    // About retries: a few, so that it is refused soon.
    let config = ConnectConfig { rnr_retry: 3, ..ConnectConfig::LIVING };
    let ends = CheckedEnds::with(ibv_qp_type::IBV_QPT_RC, &provider().1, 16, config);
    let receives = mistake(0, 1);
    (0..receives).for_each(|id| ends.receive(id, 0, 64));
    ends.send(7, 64, SIGNALED);
    let wc = ends.poll(0);
    assert_eq!((wc.status, wc.vendor_err), mistake(("RNR_RETRY_EXC", 64), ("SUCCESS", 0)));
    (0..receives).for_each(|_| assert_eq!(ends.poll(1).status, "SUCCESS"));
    ends.close();
}

#[test]
fn a_message_without_a_receive_request_is_found() {
    for (_, lines) in reports("ready") {
        let ends = "has no receive request, after 4 tries (rnr_retry is 3): its program posts one";
        assert_line(&lines[0], "finding: ibv_post_send: SEND wr_id 0x7 on QP 0x", ends);
        assert_eq!(lines[1..], ["1 finding, 0 notes"]);
    }
}

/// Posts as many requests as there is room for, and one more. The right program has a completion
/// for some of them.
fn never_signaled() {
    let ends = CheckedEnds::new();
    if mistake(false, true) {
        for id in 0..100 {
            ends.receive(id, 0, 64);
            let is_fourth = id % 4 == 3;
            ends.send(id, 8, if is_fourth { SIGNALED } else { UNSIGNALED });
            assert_eq!(ends.poll(1).id, id);
            if is_fourth {
                assert_eq!(ends.poll(0).id, id);
            }
        }
        return ends.close();
    }
    let qps = [UNSIGNALED, SIGNALED].map(|first| {
        let attr = ends.net.init_attr(ends.cq[0]);
        let cap = ibv_qp_cap { max_send_wr: 16, ..attr.cap };
        let qp = ends.net.qp_with(ibv_qp_init_attr { cap, ..attr });
        // SAFETY: it is alive.
        ends.net.connect(qp, unsafe { (*qp).qp_num }, ConnectConfig::PATIENT);
        let mut sges = [sge(ends.mr[0], 0, 8)];
        let mut flags = first;
        for _ in 0..16 {
            let mut wr = send_wr(7, W::IBV_WR_SEND, &mut sges, flags);
            assert_eq!(post_send(qp, &mut wr), 0);
            flags = UNSIGNALED;
        }
        // One that is signalled completes some time.
        let mut wr = send_wr(8, W::IBV_WR_SEND, &mut sges, SIGNALED);
        assert_eq!(post_send(qp, &mut wr), libc::ENOMEM);
        qp
    });
    qps.into_iter().for_each(|qp| ends.net.destroy_qp(qp));
    ends.close();
}

#[test]
fn a_full_send_queue_without_a_signalled_request_is_found() {
    for (_, lines) in reports("unsignaled") {
        let ends =
            "is refused (ENOMEM): the send queue is full, and none of its 16 requests is signalled";
        assert_line(&lines[0], "finding: ibv_post_send: SEND wr_id 0x8 on QP 0x", ends);
        assert_eq!(lines[1..], ["1 finding, 0 notes"]);
    }
}

fn domain_in_use() {
    let ends = CheckedEnds::new();
    if mistake(true, false) {
        // SAFETY: `ends` owns both; the calls refuse, since queue pairs use them.
        unsafe {
            assert_eq!((ends.net.v.dealloc_pd)(ends.net.pd), libc::EBUSY);
            assert_eq!((ends.net.v.destroy_cq)(ends.cq[0]), libc::EBUSY);
        }
    }
    ends.close();
}

#[test]
fn an_object_that_is_given_up_while_it_is_used_is_found() {
    for (_, lines) in reports("domain") {
        let begins = "finding: ibv_dealloc_pd of a protection domain is refused (EBUSY): it is in use by QP 0x";
        assert_line(&lines[0], begins, " bytes at 0x");
        let begins = "finding: ibv_destroy_cq of CQ 1 is refused (EBUSY): it is in use by QP 0x";
        assert_line(&lines[1], begins, ": destroy these first");
        assert_eq!(lines[2..], ["2 findings, 0 notes"]);
    }
}

/// Objects that are given up while others use them, and an address of no port.
fn given_up_in_use() {
    const LOCAL_FROM_ZERO: u32 = LOCAL | ibv_access_flags::IBV_ACCESS_ZERO_BASED.0;
    let net = Net::new();
    let (verbs, cq) = (later(net.ctx), net.cq(16));
    let mut elsewhere = ibv_ah_attr { port_num: 2, ..net.ah_attr() };
    // SAFETY: objects of this scene; each is destroyed once, after those that use it.
    unsafe {
        assert!((net.v.create_ah)(net.pd, &mut elsewhere).is_null());

        let mut attr: ibv_srq_init_attr = core::mem::zeroed();
        (attr.attr.max_wr, attr.attr.max_sge) = (4, 1);
        let srq = (net.v.create_srq)(net.pd, &mut attr);
        let qp = net.qp_with(ibv_qp_init_attr { srq, ..net.init_attr(cq) });
        assert_eq!((net.v.destroy_srq)(srq), libc::EBUSY);
        net.destroy_qp(qp);
        assert_eq!((net.v.destroy_srq)(srq), 0);

        let mut attr = ibv_alloc_dm_attr { length: 64, log_align_req: 0, comp_mask: 0 };
        let dm = verbs.alloc_dm.unwrap()(net.ctx, &mut attr);
        let mr = verbs.reg_dm_mr.unwrap()(net.pd, dm, 0, 64, LOCAL_FROM_ZERO);
        assert_eq!(verbs.free_dm.unwrap()(dm), libc::EBUSY);
        net.dereg(mr);
        assert_eq!(verbs.free_dm.unwrap()(dm), 0);

        let channel = (net.v.create_comp_channel)(net.ctx);
        let told = net.cq_with(4, channel);
        assert_eq!((net.v.destroy_comp_channel)(channel), libc::EBUSY);
        net.destroy_cq(told);
        assert_eq!((net.v.destroy_comp_channel)(channel), 0);

        let td = verbs.alloc_td.unwrap()(net.ctx, &mut ibv_td_init_attr { comp_mask: 0 });
        let mut attr = ibv_parent_domain_init_attr { pd: net.pd, td, ..Default::default() };
        let parent = verbs.alloc_parent_domain.unwrap()(net.ctx, &mut attr);
        assert_eq!(verbs.dealloc_td.unwrap()(td), libc::EBUSY);
        assert_eq!((net.v.dealloc_pd)(parent), 0);
        assert_eq!(verbs.dealloc_td.unwrap()(td), 0);
    }
    let xrcd = open_xrcd(net.ctx, -1, libc::O_CREAT).unwrap();
    let target = create_recv(net.ctx, xrcd).unwrap();
    assert_eq!(close_xrcd(xrcd), libc::EBUSY);
    net.destroy_qp(target);
    assert_eq!(close_xrcd(xrcd), 0);

    let member = GroupMember::new(&net);
    assert_eq!(attach(&net, member.qp, group(1), 0), 0);
    // SAFETY: `member` owns the queue pair, which the refused call leaves alive.
    assert_eq!(unsafe { (net.v.destroy_qp)(member.qp) }, libc::EBUSY);
    assert_eq!(detach(&net, member.qp, group(1), 0), 0);
    member.close(&net);
    net.destroy_cq(cq);
    net.close();
}

#[test]
fn a_call_that_is_refused_names_what_is_in_the_way() {
    let in_the_way = [
        (
            "ibv_create_ah is refused (EINVAL): ",
            "the device's only port needs is_global 1, sgid_index 0, port_num 1 and the GID of a",
        ),
        ("ibv_destroy_srq of SRQ ", " is refused (EBUSY): it is in use by QP 0x"),
        ("ibv_free_dm of device memory is refused (EBUSY): ", "in use by a memory region of it: "),
        (
            "ibv_destroy_comp_channel of a completion channel is refused (EBUSY): ",
            "it is in use by 1 completion queue: destroy these first",
        ),
        ("ibv_dealloc_td of a thread domain is refused (EBUSY): ", "in use by a parent domain: "),
        (
            "ibv_close_xrcd of an XRC domain is refused (EBUSY): ",
            "it is in use by 1 queue pair or receive queue: destroy these first",
        ),
        (
            "ibv_destroy_qp of QP 0x",
            " is refused (EBUSY): it is in use by a multicast group (ibv_detach_mcast): ",
        ),
    ];
    let lines = report("used");
    for (line, (begins, ends)) in lines.iter().zip(in_the_way) {
        assert_line(line, &format!("finding: {begins}"), ends);
    }
    assert_eq!(lines[in_the_way.len()..], ["7 findings, 0 notes"]);
}

/// Lists that are too long, or not there, and operations that the queue pair does not have.
fn requests_that_are_refused() {
    let (ends, nothing) = (CheckedEnds::new(), core::ptr::null_mut());
    let inline = ibv_send_flags(SIGNALED.0 | ibv_send_flags::IBV_SEND_INLINE.0);
    let mut five = [sge(ends.mr[0], 0, 65); 5];
    let one = &mut five[..1];
    let mut sends = [
        send_wr(7, W::IBV_WR_SEND, one, SIGNALED),
        send_wr(7, W::IBV_WR_SEND, one, inline),
        send_wr(7, W::IBV_WR_RDMA_READ, one, inline),
        send_wr(7, W::IBV_WR_TSO, one, SIGNALED),
        send_wr(7, W::IBV_WR_SEND, &mut five, SIGNALED),
    ];
    sends[0].sg_list = core::ptr::null_mut();
    for wr in &mut sends {
        assert_eq!(post_send(ends.qp[0], wr), libc::EINVAL);
    }

    assert_eq!(post_recv(ends.qp[1], 3, &mut five), libc::EINVAL);
    let mut wr =
        ibv_recv_wr { wr_id: 4, next: nothing, sg_list: core::ptr::null_mut(), num_sge: 1 };
    let mut bad = nothing;
    // SAFETY: the queue pair is alive, and the call refuses the request.
    assert_eq!(unsafe { ibv_post_recv(ends.qp[1], &mut wr, &mut bad) }, libc::EINVAL);

    // SAFETY: zero is a valid value of every field; objects of this scene.
    let (srq, qp) = unsafe {
        let mut attr: ibv_srq_init_attr = core::mem::zeroed();
        (attr.attr.max_wr, attr.attr.max_sge) = (4, 1);
        let srq = (ends.net.v.create_srq)(ends.net.pd, &mut attr);
        (srq, ends.net.qp_with(ibv_qp_init_attr { srq, ..ends.net.init_attr(ends.cq[0]) }))
    };
    assert_eq!(post_srq_recv(srq, 5, &mut five[..2]), libc::EINVAL);
    assert_eq!(post_recv(qp, 6, &mut five[..1]), libc::EINVAL);
    ends.net.destroy_qp(qp);
    // SAFETY: this scene made the queue, destroyed its queue pair above, and uses it no more.
    assert_eq!(unsafe { (ends.net.v.destroy_srq)(srq) }, 0);
    ends.close();
}

#[test]
fn a_post_that_is_refused_says_why() {
    let inline = "it goes inline: a SEND or WRITE may, of 64 bytes at most (max_inline_data)";
    let no_such = "the queue pair has no such operation, or the request lacks its address handle";
    let shared = "the queue pair takes from a shared receive queue: post there (ibv_post_srq_recv)";
    let why = [
        ("ibv_post_send: SEND wr_id 0x7 on QP 0x", "sg_list is NULL"),
        ("ibv_post_send: SEND wr_id 0x7 on QP 0x", inline),
        ("ibv_post_send: READ wr_id 0x7 on QP 0x", inline),
        ("ibv_post_send: opcode 10 wr_id 0x7 on QP 0x", no_such),
        ("ibv_post_send: SEND wr_id 0x7 on QP 0x", "num_sge is 5, and max_send_sge 4"),
        ("ibv_post_recv: RECV wr_id 0x3 on QP 0x", "num_sge is 5, and max_recv_sge 4"),
        ("ibv_post_recv: RECV wr_id 0x4 on QP 0x", "sg_list is NULL"),
        ("ibv_post_srq_recv: RECV wr_id 0x5 on SRQ ", "num_sge is 2, and max_recv_sge 1"),
        ("ibv_post_recv: RECV wr_id 0x6 on QP 0x", shared),
    ];
    for (device, lines) in reports("requests") {
        for (line, (begins, ends)) in lines.iter().zip(why) {
            let ends = format!(" is refused (EINVAL): {ends}");
            assert_line(line, &format!("finding: {begins}"), &ends);
        }
        assert_eq!(lines[why.len()..], ["9 findings, 0 notes"], "{device}");
    }
}

/// A batch of the newer interface is refused as a whole: in RESET for its first request, then for a
/// READ that is to go inline.
fn batches_that_are_refused() {
    use ibv_qp_create_send_ops_flags as Ops;
    use ibv_qp_init_attr_mask as M;
    let ends = CheckedEnds::new();
    let plain = ends.net.init_attr(ends.cq[0]);
    let ops = Ops::IBV_QP_EX_WITH_SEND | Ops::IBV_QP_EX_WITH_RDMA_READ;
    let mut attr = ibv_qp_init_attr_ex {
        send_cq: plain.send_cq,
        recv_cq: plain.recv_cq,
        cap: plain.cap,
        qp_type: plain.qp_type,
        comp_mask: M::IBV_QP_INIT_ATTR_PD.0 | M::IBV_QP_INIT_ATTR_SEND_OPS_FLAGS.0,
        pd: ends.net.pd,
        send_ops_flags: ops.0.into(),
        ..ibv_qp_init_attr_ex::default()
    };
    let mut word = [0_u8; 8];
    // SAFETY: this scene owns the objects, and destroys each at its end; the functions are those of the
    // newer interface.
    unsafe {
        let qp = (later(ends.net.ctx).create_qp_ex.unwrap())(ends.net.ctx, &mut attr);
        assert!(!qp.is_null());
        let ex = soft_rnic::qp_to_qp_ex(qp);
        let mut post = || {
            ((*ex).wr_start.unwrap())(ex);
            ((*ex).wr_id, (*ex).wr_flags) = (7, SIGNALED.0);
            ((*ex).wr_send.unwrap())(ex);
            (*ex).wr_id = 8;
            ((*ex).wr_rdma_read.unwrap())(ex, 1, 1);
            ((*ex).wr_set_inline_data.unwrap())(ex, word.as_mut_ptr().cast(), word.len());
            ((*ex).wr_complete.unwrap())(ex)
        };
        assert_eq!(post(), libc::EINVAL);
        ends.net.connect(qp, (*qp).qp_num, ConnectConfig::LIVING);
        assert_eq!(post(), libc::EINVAL);
        ends.net.destroy_qp(qp);
    }
    ends.close();
}

#[test]
fn a_batch_that_is_refused_says_why() {
    for (_, lines) in reports("batches") {
        let reset = " is refused (EINVAL): the queue pair is in RESET: it takes send requests from";
        assert_line(&lines[0], "finding: ibv_post_send: SEND wr_id 0x7 on QP 0x", reset);
        let inline =
            " is refused (EINVAL): it goes inline: a SEND or WRITE may, of 64 bytes at most";
        assert_line(&lines[1], "finding: ibv_post_send: READ wr_id 0x8 on QP 0x", inline);
        assert_eq!(lines[2..], ["2 findings, 0 notes"]);
    }
}

fn incomplete_transitions() {
    use ibv_qp_attr_mask as M;
    let ends = CheckedEnds::new();
    let qp = ends.net.qp(ends.cq[0]);
    let (init, rtr, _) = ends.net.steps(1, ConnectConfig::LIVING);
    let elsewhere = ibv_qp_attr { port_num: 2, ..init.0 };
    assert_eq!(ends.net.modify(qp, elsewhere, init.1), libc::EINVAL);
    assert_eq!(ends.net.modify(qp, init.0, init.1), 0);
    let less = M(rtr.1.0 & !(M::IBV_QP_PATH_MTU | M::IBV_QP_RQ_PSN).0);
    assert_eq!(ends.net.modify(qp, rtr.0, less), libc::EINVAL);
    ends.net.destroy_qp(qp);
    ends.close();
}

#[test]
fn a_bad_port_and_missing_attributes_are_found() {
    for (_, lines) in reports("mask") {
        let begins = "finding: ibv_modify_qp: RESET to INIT on QP 0x";
        let ends = "is refused (EINVAL): port_num is 2: it has to be 1, the device's only port";
        assert_line(&lines[0], begins, ends);
        let begins = "finding: ibv_modify_qp: INIT to RTR on QP 0x";
        assert_line(&lines[1], begins, ": the mask lacks IBV_QP_PATH_MTU | IBV_QP_RQ_PSN");
        assert_eq!(lines[2..], ["2 findings, 0 notes"]);
    }
}

fn leak() {
    let ends = CheckedEnds::new();
    ends.net.destroy_qp(ends.qp[0]);
    ends.net.destroy_cq(ends.cq[0]);
    ends.net.dereg(ends.mr[0]);
    core::mem::forget(ends);
}

#[test]
fn what_is_never_destroyed_is_noted() {
    for (_, lines) in reports("leak") {
        assert_line(&lines[0], "note: 1 queue pair was never destroyed: QP 0x", "");
        assert_eq!(lines[1], "note: 1 completion queue was never destroyed: CQ 2");
        assert_line(
            &lines[2],
            "note: 1 memory region was never destroyed: key 0x",
            " (4096 bytes at 0x",
        );
        assert_eq!(lines[3], "note: 1 protection domain was never destroyed");
        assert_eq!(lines[4], "note: 1 open context was never closed");
        assert_eq!(lines[5..], ["0 findings, 5 notes"]);
    }
}

#[test]
fn the_status_is_the_programs_unless_another_one_is_asked_for() {
    let status = |scene, when| play("the_other_process", scene, &[(VARIABLE, when)]).status.code();
    let of = |scene| ["report", "fail", "strict"].map(|when| status(scene, when).unwrap());
    assert_eq!(of("clean"), [0; 3]);
    assert_eq!(of("leak"), [0, 0, STATUS]);
    assert_eq!(of("reuse"), [0, STATUS, STATUS]);
    // What the program has printed is there.
    let output = play("the_other_process", "reuse", &[(VARIABLE, "fail")]);
    assert!(String::from_utf8_lossy(&output.stdout).contains("test result: ok"));
}

/// The process ends within its handlers: those of others have run before.
#[test]
fn a_capture_is_whole_although_there_are_findings() {
    let path = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("check.pcap");
    let device = format!("roce:127.31.9.4,loopback=wire,pcap={}", path.display());
    let environment = [(VARIABLE, "fail"), ("RDMA_CONN_DEVICE", &*device)];
    let output = play("the_other_process", "reuse", &environment);
    assert_eq!(output.status.code(), Some(STATUS), "{output:?}");
    // Each packet is there twice: the message, its RNR NAK, the message again, its acknowledgement.
    // And the header of the file, and of each packet.
    let bytes = std::fs::read(&path).unwrap().len();
    assert!(bytes > 24 + 8 * 16 + 4 * 1000, "{bytes} bytes");
    std::fs::remove_file(path).unwrap();
}

#[test]
fn a_process_that_is_not_checked_says_nothing() {
    for off in ["", "0"] {
        let output = play("the_other_process", "reuse", &[(VARIABLE, off)]);
        assert_eq!((output.status.code(), lines(&output).len()), (Some(0), 0));
    }
}

#[test]
fn a_value_that_is_none_is_said_and_reports() {
    let reports = |value| report_with("clean", &[(VARIABLE, value)]);
    let says = "RDMA_CONN_SOFT_CHECK=yes is taken for report: write report, fail or strict, or 0 for \
                no check";
    assert_eq!(reports("yes"), [says, "0 findings, 0 notes"]);
    assert_eq!(reports("1"), ["0 findings, 0 notes"]);
}

fn overflow() {
    // Two pairs: what is on its way when its queue pair is destroyed would take a receive.
    let [receives, sends] =
        [(); 2].map(|()| CheckedEnds::connect(ibv_qp_type::IBV_QPT_RC, &provider().1, 4));
    // Unsignalled requests have no completions.
    let room = sends.cqe();
    (0..room + 5).for_each(|id| sends.send(id, 8, UNSIGNALED));
    (0..room).for_each(|id| sends.send(id, 8, SIGNALED));
    sends.net.destroy_qp(sends.qp[0]);
    (0..=room).for_each(|id| receives.receive(id, id as usize * 64, 64));
    receives.net.destroy_qp(receives.qp[1]);
    core::mem::forget((receives, sends));
}

#[test]
fn a_completion_queue_that_could_overflow_is_found() {
    for (device, lines) in reports("overflow") {
        assert_eq!(lines[0], could_overflow(2, if device == WIRED { 16 } else { 4 }));
        assert!(lines[1..].iter().all(|line| !line.starts_with("finding")), "{lines:?}");
    }
}

/// The finding about a completion queue for which one request more is outstanding than it has
/// entries.
fn could_overflow(cq: u32, room: u32) -> String {
    let entries = if room == 1 { "entry" } else { "entries" };
    let all = room + 1;
    format!(
        "finding: CQ {cq} of {room} {entries} could overflow: {all} completions can be outstanding"
    )
}

fn overrun() {
    let ends = CheckedEnds::connect(ibv_qp_type::IBV_QPT_RC, &provider().1, 4);
    let messages = ends.cqe() + mistake(1, 0);
    (0..messages).for_each(|id| ends.receive(id, id as usize * 64, 64));
    (1..messages).for_each(|id| ends.send(id, 8, UNSIGNALED));
    ends.send(0, 8, SIGNALED);
    // All have arrived then.
    let _ = ends.poll(0);
    (0..mistake(0, messages)).for_each(|_| assert_eq!(ends.poll(1).status, "SUCCESS"));
    ends.close();
}

#[test]
fn a_completion_queue_that_overruns_is_found() {
    for (device, lines) in reports("overrun") {
        let room = if device == WIRED { 16 } else { 4 };
        let has = format!(
            "finding: CQ 2 of {room} entries has overrun: completions are lost, and its queue pairs fail"
        );
        assert_eq!(lines[..2], [could_overflow(2, room), has]);
        assert!(lines[2..].iter().all(|line| !line.starts_with("finding:")), "{lines:?}");
        let left = format!("goes with {} completions of receive requests not polled", room + 1);
        assert!(lines[2..].iter().any(|line| line.ends_with(&left)), "{lines:?}");
    }
}

fn too_short() {
    let ends = CheckedEnds::new();
    ends.receive(3, 0, mistake(60, 64));
    ends.send(7, 64, SIGNALED);
    let failed = ["REM_INV_REQ", "LOC_LEN"];
    assert_eq!([0, 1].map(|end| ends.poll(end).status), mistake(failed, ["SUCCESS"; 2]));
    ends.close();
}

#[test]
fn a_receive_that_is_too_small_is_found() {
    for (_, lines) in reports("short") {
        let begins = "finding: RECV wr_id 0x3 on QP 0x";
        assert_line(
            &lines[0],
            begins,
            "is too small by 4 bytes: it has room for 60, and a message",
        );
        assert!(lines[0].ends_with(" has 64"), "{lines:?}");
        assert_eq!(lines[1..], ["1 finding, 0 notes"]);
    }
}

/// Over the network, the length of a message is not known before its last packet has arrived.
fn too_short_for_packets() {
    let ends = CheckedEnds::new();
    ends.receive(3, 0, 1500);
    ends.send(7, 4000, SIGNALED);
    assert_eq!((ends.poll(0).status, ends.poll(1).status), ("REM_INV_REQ", "LOC_LEN"));
    ends.close();
}

#[test]
fn a_receive_that_is_too_small_for_packets_is_found() {
    for (device, lines) in reports("long") {
        let (by, has) = match device {
            WIRED => (
                "is too small by at least 548 bytes: it has room for 1500, and",
                " has 2048 or more",
            ),
            _ => ("is too small by 2500 bytes: it has room for 1500, and", " has 4000"),
        };
        assert_line(&lines[0], "finding: RECV wr_id 0x3 on QP 0x", by);
        assert!(lines[0].ends_with(has), "{device}: {lines:?}");
        assert_eq!(lines[1..], ["1 finding, 0 notes"], "{device}");
    }
}

/// Over the network the receive request that serves the next message has been taken already.
fn too_short_twice() {
    let ends = CheckedEnds::connect(ibv_qp_type::IBV_QPT_UC, &provider().1, 16);
    ends.receive(3, 0, 60);
    ends.send(7, 64, SIGNALED);
    ends.send(8, 60, SIGNALED);
    let _ = [ends.poll(0), ends.poll(0), ends.poll(1)];
    ends.receive(4, 0, 60);
    ends.send(9, 61, SIGNALED);
    ends.send(10, 1, SIGNALED);
    let _ = [ends.poll(0), ends.poll(0), ends.poll(1)];
    // One that is taken when the queue pair goes is no message.
    ends.receive(5, 0, 60);
    ends.send(11, 62, SIGNALED);
    let _ = ends.poll(0);
    has_received(5);
    ends.close();
}

#[test]
fn a_receive_that_is_too_small_serves_the_next_message() {
    for (device, lines) in reports("unreliable") {
        for (line, (id, len)) in lines.iter().zip([(3, 64), (4, 61), (5, 62)]) {
            let ends = format!(" has {len}; the message is dropped");
            assert_line(line, &format!("finding: RECV wr_id {id:#x} on QP 0x"), &ends);
        }
        assert_eq!(lines[3..], ["3 findings, 0 notes"], "{device}");
    }
}

/// The buffer of a receive request that a WRITE completes is the program's.
fn receive_without_a_message() {
    let ends = CheckedEnds::new();
    let mut written = [0; 64];
    let to = ends.net.mr(&mut written, RW);
    ends.receive(3, 0, 64);
    ends.change(1, 0);
    let mut sges = [sge(ends.mr[0], 0, 64)];
    let mut wr = send_wr(7, W::IBV_WR_RDMA_WRITE_WITH_IMM, &mut sges, SIGNALED);
    // SAFETY: the region is alive.
    (wr.wr.rdma.remote_addr, wr.wr.rdma.rkey) = unsafe { ((*to).addr as u64, (*to).rkey) };
    assert_eq!(post_send(ends.qp[0], &mut wr), 0);
    let _ = ends.poll(0);
    ends.change(1, 1);
    let _ = ends.poll(1);
    ends.net.dereg(to);
    ends.close();
}

#[test]
fn the_buffer_of_a_receive_without_a_message_is_not_compared() {
    for (device, lines) in reports("immediate") {
        assert_eq!(lines, ["0 findings, 0 notes"], "{device}");
    }
}

/// Waits until `packets` packets have arrived, if the device is on the network.
fn has_received(packets: u64) {
    let received = || soft_rnic::packet_counters_of(&provider().1).map(|all| all.received);
    while received().is_some_and(|received| received < packets) {
        std::thread::yield_now();
    }
}

/// No status tells of it.
fn datagram_too_long() {
    let ends = CheckedEnds::connect(ibv_qp_type::IBV_QPT_UD, &provider().1, 16);
    ends.receive(3, 0, 64);
    let ah = ends.net.ah();
    let mut sges = [sge(ends.mr[0], 0, 32)];
    // SAFETY: the queue pair is alive.
    let to = unsafe { (*ends.qp[1]).qp_num };
    let mut wr = datagram_wr(7, &mut sges, SIGNALED, (ah, to, QKEY));
    assert_eq!(post_send(ends.qp[0], &mut wr), 0);
    assert_eq!(ends.poll(0).status, "SUCCESS");
    has_received(1);
    ends.net.destroy_ah(ah);
    ends.close();
}

#[test]
fn a_datagram_that_is_dropped_for_want_of_room_is_found() {
    for (_, lines) in reports("datagram") {
        let ends = " has 72 (40 of them the header in front); the message is dropped";
        assert_line(&lines[0], "finding: RECV wr_id 0x3 on QP 0x", ends);
        assert_eq!(lines[1..], ["1 finding, 0 notes"]);
    }
}

fn overlapping_receives() {
    let ends = CheckedEnds::new();
    (0..4).for_each(|id| ends.receive(id, 0, 64));
    for id in 0..4 {
        ends.send(id, 64, SIGNALED);
        let _ = ends.poll(0);
        ends.change(0, 5);
    }
    (0..4).for_each(|_| _ = ends.poll(1));
    ends.close();
}

#[test]
fn receives_into_the_same_bytes_are_noted_once() {
    for (_, lines) in reports("overlap") {
        let begins = "note: the buffer of RECV wr_id 0x1 on QP 0x";
        assert_line(&lines[0], begins, "overlaps that of another request that is posted");
        assert_eq!(lines[1..], ["0 findings, 1 note"]);
    }
}

/// Everything that a correct program may do, and more of it than the queues are long.
fn clean() {
    let ends = CheckedEnds::new();
    let inline = ibv_send_flags(SIGNALED.0 | ibv_send_flags::IBV_SEND_INLINE.0);
    for round in 0..100_u64 {
        (0..4).for_each(|id| ends.receive(id, id as usize * 64, 64));
        // Requests share what nothing writes to.
        (0..3).for_each(|id| ends.send(id, 64, UNSIGNALED));
        ends.send(3, 64, inline);
        // What was inline may change at once, but not what goes from the same bytes.
        assert_eq!(ends.poll(0).id, 3);
        ends.change(0, round as usize % 64);
        ends.send(4, 32, inline);
        ends.change(0, 31);
        assert_eq!(ends.net.poll(ends.cq[1], 4).len(), 4);
        ends.change(1, 63);
        ends.receive(5, 0, 64);
        assert_eq!((ends.poll(0).id, ends.poll(1).id), (4, 5));
    }
    // What is left posted goes with its queue.
    ends.receive(9, 0, 64);
    ends.change(1, 0);
    ends.close();
}

#[test]
fn a_correct_program_has_no_findings() {
    for (device, lines) in reports("clean") {
        assert_eq!(lines, ["0 findings, 0 notes"], "{device}");
    }
}

#[test]
fn the_same_is_found_on_the_way_to_another_process() {
    assert_eq!(report_apart("clean"), ["0 findings, 0 notes"]);
    for scene in ["reuse", "receive", "short", "deregister", "lkey", "buffer", "rkey", "ready"] {
        let lines = report_apart(scene);
        assert!(lines[0].starts_with("finding: "), "{lines:?}");
        assert_eq!(lines[1..], ["1 finding, 0 notes"]);
    }
}

/// Peers may write to memory that they have a key of, also where a receive request is posted.
fn remote_writes() {
    let p = QpPair::with(Net::new(), ConnectConfig::default(), ConnectConfig::default());
    let mut sges = [sge(p.mr[0], 0, 64)];
    assert_eq!(post_recv(p.qp[1], 1, &mut [sge(p.mr[1], 0, 64)]), 0);
    let mut wr = send_wr(7, W::IBV_WR_RDMA_WRITE, &mut sges, SIGNALED);
    (wr.wr.rdma.remote_addr, wr.wr.rdma.rkey) = (p.addr(1), p.key(1));
    // SAFETY: memory of this test.
    unsafe { p.buf[0].as_ptr().cast_mut().write_volatile(9) };
    assert_eq!(post_send(p.qp[0], &mut wr), 0);
    assert_eq!(post_send(p.qp[0], &mut send_wr(8, W::IBV_WR_SEND, &mut sges, SIGNALED)), 0);
    assert_eq!((p.net.poll(p.cq[0], 2).len(), p.net.poll(p.cq[1], 1).len()), (2, 1));
    p.close();
}

#[test]
fn what_peers_write_to_is_not_compared() {
    for (device, lines) in reports("remote") {
        assert_eq!(lines, ["0 findings, 0 notes"], "{device}");
    }
}

/// The bytes of a receive request may be those of a second region, which peers may write to: one
/// that is registered before the request is posted, or while it is, and may be gone when it
/// completes.
fn remote_writes_by_another_key() {
    let mut ends = CheckedEnds::new();
    for (is_first, goes) in [(true, true), (true, false), (false, false), (false, true)] {
        let expose = |ends: &mut CheckedEnds| ends.net.mr(&mut ends.buf[1][32..128], RW);
        let first = is_first.then(|| expose(&mut ends));
        ends.receive(1, 0, 64);
        let other = first.unwrap_or_else(|| expose(&mut ends));
        let write = |ends: &CheckedEnds| {
            let mut sges = [sge(ends.mr[0], 0, 8)];
            let mut wr = send_wr(7, W::IBV_WR_RDMA_WRITE, &mut sges, SIGNALED);
            ends.change(0, 0);
            // SAFETY: the region is alive.
            let (addr, key) = unsafe { ((*other).addr as u64, (*other).rkey) };
            (wr.wr.rdma.remote_addr, wr.wr.rdma.rkey) = (addr, key);
            assert_eq!(post_send(ends.qp[0], &mut wr), 0);
            assert_eq!(ends.poll(0).status, "SUCCESS");
        };
        write(&ends);
        if goes {
            ends.net.dereg(other);
        }
        ends.send(8, 64, SIGNALED);
        assert_eq!(ends.poll(0).id, 8);
        if !goes {
            write(&ends);
            ends.net.dereg(other);
        }
        assert_eq!(ends.poll(1).id, 1);
    }
    ends.close();
}

#[test]
fn what_peers_write_to_by_another_key_is_not_compared() {
    for (device, lines) in reports("twice") {
        assert_eq!(lines, ["0 findings, 0 notes"], "{device}");
    }
}

/// They are in their place before they take a receive request.
fn messages_out_of_on_demand_memory() {
    let ends = CheckedEnds::new();
    let (pages, mut room) = (MappedPages::new(4), vec![0; 4 * PAGE]);
    let mr = explicit(&ends.net, &pages, LOCAL);
    let to = ends.net.mr(&mut room, LOCAL);
    for len in [8, 3 * PAGE as u32] {
        pages.fill(0, len as usize, len as u8 | 1);
        assert_eq!(post_recv(ends.qp[1], 1, &mut [sge(to, 0, len)]), 0);
        let mut sges = [piece(&pages, mr, 0, len)];
        let mut wr = send_wr(2, W::IBV_WR_SEND, &mut sges, SIGNALED);
        assert_eq!(post_send(ends.qp[0], &mut wr), 0);
        assert_eq!([0, 1].map(|end| ends.poll(end).status), ["SUCCESS"; 2]);
    }
    [mr, to].into_iter().for_each(|mr| ends.net.dereg(mr));
    ends.close();
}

#[test]
fn messages_out_of_on_demand_memory_have_no_findings() {
    assert_eq!(report("on demand"), ["0 findings, 0 notes"]);
}

/// Requests of a shared queue complete at the queue pair that takes them.
fn shared_receives() {
    let ends = CheckedEnds::new();
    let cq = ends.net.cq(1);
    // SAFETY: zero is a valid value of every field; objects of this test.
    let (srq, qp) = unsafe {
        let mut attr: ibv_srq_init_attr = core::mem::zeroed();
        (attr.attr.max_wr, attr.attr.max_sge) = (32, 1);
        let srq = (ends.net.v.create_srq)(ends.net.pd, &mut attr);
        (srq, ends.net.qp_with(ibv_qp_init_attr { srq, ..ends.net.init_attr(cq) }))
    };
    // SAFETY: both are alive.
    let numbers = unsafe { ((*ends.qp[0]).qp_num, (*qp).qp_num) };
    assert_eq!(ends.net.to_state(ends.qp[0], ibv_qp_state::IBV_QPS_RESET), 0);
    ends.net.connect(ends.qp[0], numbers.1, ConnectConfig::default());
    ends.net.connect(qp, numbers.0, ConnectConfig::default());
    // SAFETY: it is alive.
    for id in 0..=unsafe { (*cq).cqe } as u64 {
        assert_eq!(post_srq_recv(srq, id, &mut [sge(ends.mr[1], 64 * id as usize, 64)]), 0);
    }
    ends.change(1, 0);
    ends.send(7, 64, SIGNALED);
    assert_eq!((ends.poll(0).id, ends.net.poll(cq, 1)[0].id), (7, 0));
    ends.net.destroy_qp(qp);
    // SAFETY: the test is done with it.
    assert_eq!(unsafe { (ends.net.v.destroy_srq)(srq) }, 0);
    ends.net.destroy_cq(cq);
    ends.close();
}

#[test]
fn receives_of_a_shared_queue_are_checked() {
    for (device, lines) in reports("shared") {
        let room = if device == WIRED { 16 } else { 1 };
        assert_eq!(lines[0], could_overflow(3, room));
        let begins = "finding: the buffer of RECV wr_id 0x0 on QP 0x";
        assert_line(&lines[1], begins, "while it was posted");
        assert_eq!(lines[2..], ["2 findings, 0 notes"]);
    }
}

fn never_acknowledged() {
    let net = Net::new();
    // SAFETY: objects of this test, which stay.
    unsafe {
        let channel = (net.v.create_comp_channel)(net.ctx);
        let cq = net.cq_with(4, channel);
        let qp = net.qp(cq);
        assert_eq!(ibv_req_notify_cq(cq, 0), 0);
        let (init, ..) = net.steps(0, ConnectConfig::default());
        assert_eq!(net.modify(qp, init.0, init.1), 0);
        assert_eq!(net.to_state(qp, ibv_qp_state::IBV_QPS_ERR), 0);
        assert_eq!(post_recv(qp, 1, &mut []), 0);
        let (mut of, mut user) = (core::ptr::null_mut(), core::ptr::null_mut());
        assert_eq!((net.v.get_cq_event)(channel, &mut of, &mut user), 0);
    }
}

#[test]
fn events_and_completions_that_are_left_are_reported() {
    for (_, lines) in reports("ack") {
        assert_eq!(lines[0], "note: CQ 1 is left with 1 completion not polled");
        assert_eq!(
            lines[1],
            "finding: CQ 1 is left with 1 event not acknowledged: its destruction would wait for ever"
        );
        assert_eq!(lines.last().unwrap(), "1 finding, 6 notes");
    }
}

/// A child has a report of its own, if it opens a device.
fn fork() {
    let parent = Net::new();
    for opens in [false, true] {
        // SAFETY: the child does nothing that another thread might have a lock of: the harness
        // waits.
        let child = unsafe { libc::fork() };
        if child == 0 {
            if opens {
                let _left = Net::new();
            }
            // SAFETY: it ends with the handlers of the process.
            unsafe { libc::exit(0) };
        }
        let mut status = 0;
        // SAFETY: a child of ours.
        assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
        assert_eq!(status, 0);
    }
    parent.close();
}

#[test]
fn a_child_reports_what_is_its_own() {
    let output = play("the_other_process", "fork", &[(VARIABLE, "report")]);
    assert!(output.status.success(), "{output:?}");
    let left =
        ["note: 1 protection domain was never destroyed", "note: 1 open context was never closed"];
    let all = [&left[..], &["0 findings, 2 notes", "0 findings, 0 notes"]].concat();
    assert_eq!(lines(&output), all);
}
