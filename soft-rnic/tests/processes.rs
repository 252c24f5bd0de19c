//! `soft0` between two processes: this program starts itself again.
//!
//! Not on apart, distant, wired: its ends are processes, as those of soft0.

mod common;

use std::time::{Duration, Instant};

use common::other::*;
use common::*;
use verbs_sys::ibv_wr_opcode as W;
use verbs_sys::*;

const RC: ibv_qp_type = ibv_qp_type::IBV_QPT_RC;
const UC: ibv_qp_type = ibv_qp_type::IBV_QPT_UC;
const SHARED: usize = 0;
const HEAP: usize = 1;

/// Starts this program again, in a role.
fn start(role: &str) -> Other {
    Other::start("the_other_process", role)
}

#[test]
fn the_other_process() {
    match role().as_deref() {
        None => {}
        Some("passive") => be_passive(),
        Some("echo") => be_echo(),
        Some("blocked") => be_blocked(),
        Some("curt") => be_curt(),
        Some("another") => become_another_program(),
        Some("forking") => be_forking(),
        Some("limited") => be_limited(),
        Some("without barriers") => be_without_barriers(),
        Some("aside") => be_asked_aside(),
        Some("unready") => be_unready(),
        Some("reregistering") => be_reregistering(),
        Some("refused before") => be_refused(true),
        Some("refused after") => be_refused(false),
        Some("refused receiver") => be_refused_as_receiver(),
        Some("another user") => become_another_user(),
        Some(other) => panic!("{other}"),
    }
}

/// Connects and makes no verbs call any more; ten receives are posted.
fn be_passive() {
    let end = NearEnd::new(RC);
    for id in 0..10 {
        assert_eq!(post_recv(end.qp, id, &mut [end.local(SHARED, 0, 65_536)]), 0);
    }
    join_as_other(&end, patient());
    while let Some(line) = hear() {
        let at: usize = line.parse().unwrap();
        say(&format!("{} {}", end.shared.bytes[at], end.heap[at]));
    }
    end.close();
}

/// Registers its shareable memory's region again, with other memory, when it is told to.
fn be_reregistering() {
    let end = NearEnd::new(RC);
    join_as_other(&end, patient());
    let other = Shareable::new(BYTES);
    assert_eq!(hear().as_deref(), Some("now"));
    let rereg = end.net.v.rereg_mr.unwrap();
    let what = ibv_rereg_mr_flags::IBV_REREG_MR_CHANGE_TRANSLATION.0 as i32;
    let to = &mut *other.bytes;
    let null = core::ptr::null_mut();
    // SAFETY: the memory stays as long as the process.
    let code = unsafe { rereg(end.mr[SHARED], what, null, to.as_mut_ptr().cast(), BYTES, 0) };
    assert_eq!(code, 0);
    say(&format!("{}", to.as_ptr() as u64));
    while hear().is_some() {
        say(&format!("{} {}", end.shared.bytes[0], other.bytes[0]));
    }
    end.close();
}

#[test]
fn a_region_that_is_registered_again_is_reached_by_its_old_key() {
    if !is_softs_own("keys stay") {
        return;
    }
    let mut other = start("reregistering");
    let mut end = NearEnd::new(RC);
    let far = join(&end, &mut other, patient());
    let local = end.local(HEAP, 0, 8);
    let (old, key) = far.memory[SHARED];
    let status = |end: &NearEnd, at| {
        end.post_rdma(W::IBV_WR_RDMA_WRITE, local, (at, key));
        end.net.poll(end.cq, 1)[0].status
    };
    end.heap[0] = 1;
    assert_eq!(status(&end, old), "SUCCESS");
    other.say("now");
    let new: u64 = other.hear().parse().unwrap();
    end.heap[0] = 2;
    assert_eq!(status(&end, new), "SUCCESS");
    other.say("look");
    assert_eq!(other.hear(), "1 2");
    assert_eq!(status(&end, old), "REM_ACCESS");
    drop(other);
    end.close();
}

/// Forks between two messages: the child does what one does whose `main` returns.
fn be_forking() {
    let end = NearEnd::new(RC);
    join_as_other(&end, patient());
    end.send(end.local(HEAP, 0, 8));
    assert_eq!(end.net.poll(end.cq, 1)[0].status, "SUCCESS");
    // SAFETY: there is no other thread but the progress thread, which leaves the device alone as
    // long as the program polls.
    let child = unsafe { libc::fork() };
    if child == 0 {
        // SAFETY: a child that waits for ever ends, too.
        unsafe { libc::alarm(60) };
        let closed = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| end.close()));
        // SAFETY: it ends here.
        unsafe { libc::_exit(i32::from(closed.is_err())) };
    }
    let mut status = 0;
    // SAFETY: a child of ours that was not waited for.
    assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
    say(&status.to_string());
    end.send(end.local(HEAP, 0, 8));
    assert_eq!(end.net.poll(end.cq, 1)[0].status, "SUCCESS");
    say("goes on");
    end.close();
}

/// Waits for messages in the kernel, and says when one has arrived.
fn be_blocked() {
    let net = Net::new();
    // SAFETY: the context is open, and the channel goes with the process.
    let channel = unsafe { (net.v.create_comp_channel)(net.ctx) };
    let cq = net.cq_with(64, channel);
    let end = NearEnd::on(RC, net, cq);
    for id in 0..8 {
        assert_eq!(post_recv(end.qp, id, &mut [end.local(HEAP, 0, 64)]), 0);
    }
    join_as_other(&end, patient());
    for _ in 0..8 {
        let mut n = 0;
        while n == 0 {
            // SAFETY: all of it is alive.
            unsafe {
                assert_eq!(ibv_req_notify_cq(cq, 0), 0);
                n = end.net.poll_now(cq).len();
                if n == 0 {
                    let (mut which, mut user) = (core::ptr::null_mut(), core::ptr::null_mut());
                    assert_eq!((end.net.v.get_cq_event)(channel, &mut which, &mut user), 0);
                    (end.net.v.ack_cq_events)(which, 1);
                    n = end.net.poll_now(cq).len();
                }
            }
        }
        assert_eq!(n, 1);
        say("woken");
    }
    assert_eq!(hear(), None);
}

/// Sends everything back.
fn be_echo() {
    let end = NearEnd::new(RC);
    for id in 0..2 {
        assert_eq!(post_recv(end.qp, id, &mut [end.local(id as usize, 0, BYTES as u32)]), 0);
    }
    join_as_other(&end, patient());
    let mut left = 2;
    while left > 0 {
        for wc in end.net.poll(end.cq, 1) {
            assert_eq!(wc.status, "SUCCESS");
            if wc.opcode == "RECV" {
                end.send(end.local(wc.id as usize, 0, wc.len));
            } else {
                left -= 1;
            }
        }
    }
    assert_eq!(hear(), None);
    end.close();
}

/// Ends as soon as it has answered the first message.
fn be_curt() {
    let end = NearEnd::new(RC);
    assert_eq!(post_recv(end.qp, 1, &mut [end.local(HEAP, 0, 64)]), 0);
    join_as_other(&end, patient());
    assert_eq!(end.net.poll(end.cq, 1)[0].opcode, "RECV");
    end.send(end.local(HEAP, 0, 64));
    std::process::exit(0);
}

/// Connects, and runs another program when it is told to.
fn become_another_program() {
    use std::os::unix::process::CommandExt;
    let end = NearEnd::new(RC);
    for id in 0..10 {
        assert_eq!(post_recv(end.qp, id, &mut [end.local(HEAP, 0, 64)]), 0);
    }
    join_as_other(&end, patient());
    assert_eq!(hear().as_deref(), Some("now"));
    let error = std::process::Command::new("cat").exec();
    panic!("{error}");
}

const ATTACH: [libc::c_long; 2] = [libc::SYS_process_vm_readv, libc::SYS_process_vm_writev];

/// May not attach to others, from the beginning or since it has met one.
fn be_refused(before: bool) {
    if before {
        refuse(&ATTACH);
    }
    let end = NearEnd::new(RC);
    let far = join_as_other(&end, patient());
    if !before {
        assert_eq!(soft_rnic::refused_memory(), None);
        refuse(&ATTACH);
    }
    let local = end.local(HEAP, 0, 8);
    for (op, memory) in [
        (W::IBV_WR_RDMA_WRITE, SHARED),
        (W::IBV_WR_RDMA_READ, SHARED),
        (W::IBV_WR_ATOMIC_FETCH_AND_ADD, HEAP),
        (W::IBV_WR_SEND, HEAP),
        (W::IBV_WR_RDMA_READ, HEAP),
    ] {
        match op {
            W::IBV_WR_SEND => end.send(end.local(HEAP, 0, 64)),
            _ => end.post_rdma(op, local, far.memory[memory]),
        }
        let wc = end.net.poll(end.cq, 1)[0];
        say(&format!("{} {}", wc.status, wc.vendor_err));
    }
    say(&soft_rnic::refused_memory().unwrap());
    assert_eq!(hear(), None);
}

fn be_refused_as_receiver() {
    refuse(&ATTACH);
    let end = NearEnd::new(RC);
    assert_eq!(post_recv(end.qp, 1, &mut [end.local(HEAP, 0, BYTES as u32)]), 0);
    join_as_other(&end, patient());
    assert_eq!(hear(), None);
}

/// Gives its rights up once it is connected, as a daemon does.
fn become_another_user() {
    let end = NearEnd::new(RC);
    for (id, len) in [(1, 64), (2, BYTES as u32)] {
        assert_eq!(post_recv(end.qp, id, &mut [end.local(HEAP, 0, len)]), 0);
    }
    join_as_other(&end, patient());
    assert_eq!(hear().as_deref(), Some("now"));
    if rustix::process::geteuid().is_root() {
        // SAFETY: the call has no pointer; the C library changes the user of all threads of this
        // process.
        assert_eq!(unsafe { libc::setuid(65_534) }, 0);
    } else {
        // Only root can; what the system answers afterwards is the same.
        refuse(&ATTACH);
    }
    say("done");
    assert_eq!(hear(), None);
}

/// The system executes no barriers of others for it any more.
fn be_without_barriers() {
    let end = NearEnd::new(RC);
    for id in 0..11 {
        assert_eq!(post_recv(end.qp, id, &mut [end.local(HEAP, 0, 64)]), 0);
    }
    join_as_other(&end, patient());
    assert_eq!(hear().as_deref(), Some("now"));
    refuse(&[libc::SYS_membarrier]);
    let mut more = vec![0; 64];
    let mr = end.net.mr(&mut more, RW);
    // SAFETY: the region is alive.
    say(&unsafe { (end.net.v.dereg_mr)(mr) }.to_string());
    assert_eq!(hear(), None);
}

/// Looks at the descriptor of a channel whose queue gets nothing.
fn be_asked_aside() {
    let net = Net::new();
    // SAFETY: the context is open, and the channel goes with the process.
    let channel = unsafe { (net.v.create_comp_channel)(net.ctx) };
    let quiet = net.cq_with(64, channel);
    let cq = net.cq(64);
    let end = NearEnd::on(RC, net, cq);
    for id in 0..8 {
        assert_eq!(post_recv(end.qp, id, &mut [end.local(HEAP, 0, 64)]), 0);
    }
    join_as_other(&end, patient());
    // SAFETY: the channel is alive.
    let fd = unsafe { std::os::fd::BorrowedFd::borrow_raw((*channel).fd) };
    for _ in 0..8 {
        // SAFETY: the queue is alive.
        assert_eq!(unsafe { ibv_req_notify_cq(quiet, 0) }, 0);
        say("waits");
        let mut fds = [rustix::event::PollFd::new(&fd, rustix::event::PollFlags::IN)];
        let moment = rustix::event::Timespec { tv_sec: 0, tv_nsec: 50_000_000 };
        assert_eq!(rustix::event::poll(&mut fds, Some(&moment)), Ok(0));
        assert_eq!(end.net.poll(cq, 1).len(), 1);
    }
    say("done");
    assert_eq!(hear(), None);
}

/// May not have files as long as those that processes share.
fn be_limited() {
    use rustix::process::{Resource, Rlimit, setrlimit};
    let limit = Rlimit { current: Some(1 << 20), maximum: None };
    setrlimit(Resource::Fsize, limit).unwrap();
    say(&soft_rnic::crosses_processes().unwrap_err());
    // Within the process everything is as it was.
    let pair = QpPair::new();
    pair.close();
    say("closed");
}

/// Posts no receives, and says when messages have found none.
fn be_unready() {
    let end = NearEnd::new(UC);
    join_as_other(&end, ConnectConfig::default());
    while let Some(line) = hear() {
        let all: u64 = line.parse().unwrap();
        while soft_rnic::counters().missed < all {
            assert!(end.net.poll_now(end.cq).is_empty());
        }
        say(&soft_rnic::counters().missed.to_string());
    }
    end.close();
}

fn fill(bytes: &mut [u8], with: u8) {
    for (i, byte) in bytes.iter_mut().enumerate() {
        *byte = with.wrapping_add((i % 251) as u8);
    }
}

#[test]
fn memory_of_a_stopped_process_is_written_and_read() {
    let mut other = start("passive");
    let mut end = NearEnd::new(RC);
    let far = join(&end, &mut other, patient());
    other.signal(libc::SIGSTOP);
    wait_until_all(other.pid(), 'T');
    for (memory, len) in [(SHARED, 8), (HEAP, 8), (SHARED, 100_001), (HEAP, 100_001)] {
        let (addr, key) = far.memory[memory];
        fill(&mut end.heap[..len], len as u8);
        let to = (addr + 3, key);
        end.post_rdma(W::IBV_WR_RDMA_WRITE, end.local(HEAP, 0, len as u32), to);
        assert_eq!(end.net.poll(end.cq, 1)[0].status, "SUCCESS");
        end.post_rdma(W::IBV_WR_RDMA_READ, end.local(SHARED, 7, len as u32), to);
        assert_eq!(end.net.poll(end.cq, 1)[0].status, "SUCCESS");
        assert_eq!(end.shared.bytes[7..7 + len], end.heap[..len]);
    }
    for old in [0_u64, 5] {
        let (addr, key) = far.memory[SHARED];
        let word = (addr + (1 << 19), key);
        end.post_rdma(W::IBV_WR_ATOMIC_FETCH_AND_ADD, end.local(HEAP, 0, 8), word);
        assert_eq!(end.net.poll(end.cq, 1)[0].status, "SUCCESS");
        assert_eq!(end.heap[..8], old.to_ne_bytes());
    }
    other.signal(libc::SIGCONT);
    other.say(&(1 << 19).to_string());
    assert_eq!(other.hear(), "10 0");
    end.close();
}

#[test]
fn a_message_waits_until_a_stopped_process_continues() {
    if !is_softs_own("a message to a stopped process waits") {
        // Elsewhere the device answers for it.
        return;
    }
    let mut other = start("passive");
    let end = NearEnd::new(RC);
    // About retries: those of a peer that does not answer would be over within a millisecond.
    let hasty = ConnectConfig { timeout: 1, retry_cnt: 0, ..patient() };
    join(&end, &mut other, hasty);
    other.signal(libc::SIGSTOP);
    wait_until_all(other.pid(), 'T');
    end.send(end.local(HEAP, 0, 8));
    // They would be over by then, and a look would find that.
    std::thread::sleep(Duration::from_millis(100));
    for _ in 0..10_000 {
        assert!(end.net.poll_now(end.cq).is_empty(), "it has not waited");
    }
    other.signal(libc::SIGCONT);
    assert_eq!(end.net.poll(end.cq, 1)[0].status, "SUCCESS");
    end.close();
}

#[test]
fn the_device_helps_where_the_program_makes_no_call() {
    let mut other = start("passive");
    let mut end = NearEnd::new(RC);
    let far = join(&end, &mut other, patient());
    // An atomic on memory that cannot be mapped.
    for old in [0_u64, 5] {
        end.post_rdma(W::IBV_WR_ATOMIC_FETCH_AND_ADD, end.local(HEAP, 0, 8), far.memory[HEAP]);
        assert_eq!(end.net.poll(end.cq, 1)[0].status, "SUCCESS");
        assert_eq!(end.heap[..8], old.to_ne_bytes());
    }
    // Messages of every length that goes another way.
    for (memory, len) in [(HEAP, 8), (HEAP, 33), (HEAP, 8_193), (SHARED, 65_536)] {
        let bytes = if memory == HEAP { &mut end.heap[..] } else { &mut *end.shared.bytes };
        fill(&mut bytes[..len], len as u8);
        end.send(end.local(memory, 0, len as u32));
        assert_eq!(end.net.poll(end.cq, 1)[0].status, "SUCCESS");
        other.say(&(len - 1).to_string());
        let last = bytes_at(&end, memory, len - 1);
        assert_eq!(other.hear().split(' ').next(), Some(&*last.to_string()), "{len}");
    }
    end.close();
}

fn bytes_at(end: &NearEnd, memory: usize, at: usize) -> u8 {
    if memory == HEAP { end.heap[at] } else { end.shared.bytes[at] }
}

#[test]
fn messages_go_both_ways() {
    let mut other = start("echo");
    let mut end = NearEnd::new(RC);
    for (id, memory) in [(0, HEAP), (1, SHARED)] {
        assert_eq!(post_recv(end.qp, id, &mut [end.local(memory, 1 << 19, 1 << 19)]), 0);
    }
    join(&end, &mut other, patient());
    for (len, memory) in [(17, HEAP), (300_000, SHARED)] {
        fill(&mut end.heap[..len], len as u8);
        end.send(end.local(HEAP, 0, len as u32));
        let all = end.net.poll(end.cq, 2);
        assert!(all.iter().all(|wc| wc.status == "SUCCESS"), "{all:?}");
        for at in 0..len {
            assert_eq!(bytes_at(&end, memory, (1 << 19) + at), end.heap[at], "{at} of {len}");
        }
    }
    end.close();
}

#[test]
fn keys_and_bounds_are_those_of_the_other_process() {
    // What is added to the address, and what is wrong with the key.
    for (offset, flipped) in [(0, 1 << 20), (BYTES as i64, 0), (-8, 0)] {
        let mut other = start("passive");
        let end = NearEnd::new(RC);
        let far = join(&end, &mut other, patient());
        let (addr, key) = far.memory[SHARED];
        let remote = (addr.wrapping_add_signed(offset), key ^ flipped);
        end.post_rdma(W::IBV_WR_RDMA_WRITE, end.local(HEAP, 0, 8), remote);
        assert_eq!(end.net.poll(end.cq, 1)[0].status, "REM_ACCESS");
        assert_eq!(qp_state_name(end.net.state(end.qp)), "ERR");
        other.say("0");
        assert_eq!(other.hear(), "0 0");
        end.close();
    }
}

#[test]
fn a_process_that_is_killed_leaves_its_peer_with_an_error() {
    let mut other = start("passive");
    let end = NearEnd::new(RC);
    let far = join(&end, &mut other, patient());
    // The receives are used up: then it waits for a receiver that is not ready.
    for _ in 0..11 {
        end.send(end.local(HEAP, 0, 8));
    }
    assert_eq!(end.net.poll(end.cq, 10).len(), 10);
    other.signal(libc::SIGKILL);
    assert_eq!(end.net.poll(end.cq, 1)[0].status, "RETRY_EXC");
    assert_eq!(qp_state_name(end.net.state(end.qp)), "ERR");
    end.post_rdma(W::IBV_WR_RDMA_WRITE, end.local(HEAP, 0, 8), far.memory[SHARED]);
    assert_eq!(end.net.poll(end.cq, 1)[0].status, "WR_FLUSH");
    end.close();
}

#[test]
fn a_process_that_runs_another_program_fails_its_peer() {
    let is_noticed = |memory: Option<usize>| {
        let mut other = start("another");
        let end = NearEnd::new(RC);
        let mortal = ConnectConfig { rnr_retry: patient().rnr_retry, ..ConnectConfig::mortal() };
        let far = join(&end, &mut other, mortal);
        other.say("now");
        let name = format!("/proc/{}/comm", other.pid());
        while std::fs::read_to_string(&name).unwrap() != "cat\n" {
            std::thread::yield_now();
        }
        let local = end.local(HEAP, 0, 8);
        let mut goes_on = 0..1_000_000;
        let status = loop {
            assert!(goes_on.next().is_some(), "{memory:?}: it was not noticed");
            match memory {
                None => end.send(local),
                Some(memory) => end.post_rdma(W::IBV_WR_RDMA_WRITE, local, far.memory[memory]),
            }
            match end.net.poll(end.cq, 1)[0].status {
                // The memory file is there until it is noticed; what a kernel has is there
                // until it has closed the old program's files.
                "SUCCESS" if memory == Some(SHARED) || !is_soft() => {}
                status => break status,
            }
        };
        assert!(is_end_of_process(status), "{memory:?}: {status}");
        assert_eq!(qp_state_name(end.net.state(end.qp)), "ERR");
        end.close();
    };
    std::thread::scope(|scope| {
        for memory in [None, Some(SHARED), Some(HEAP)] {
            scope.spawn(move || is_noticed(memory));
        }
    });
}

#[test]
fn a_process_whose_files_may_not_be_long_enough_stays_by_itself() {
    if !is_softs_own("files that may not be long enough") {
        return;
    }
    let mut other = start("limited");
    let why = other.hear();
    assert!(why.contains("sealed memory files"), "{why}");
    assert_eq!(other.hear(), "closed");
}

#[test]
fn a_process_without_barriers_keeps_its_memory_and_still_serves() {
    if !is_softs_own("a process without barriers") {
        return;
    }
    let mut other = start("without barriers");
    let end = NearEnd::new(RC);
    join(&end, &mut other, patient());
    // They meet first: a process that has met no other has none to wait for.
    end.send(end.local(HEAP, 0, 8));
    assert_eq!(end.net.poll(end.cq, 1)[0].status, "SUCCESS");
    other.say("now");
    assert_eq!(other.hear(), libc::EBUSY.to_string());
    for _ in 0..10 {
        end.send(end.local(HEAP, 0, 8));
        assert_eq!(end.net.poll(end.cq, 1)[0].status, "SUCCESS");
        wait_until_asleep(other.pid());
    }
    end.close();
}

#[test]
fn a_channel_is_readable_for_events_and_nothing_else() {
    let mut other = start("aside");
    let end = NearEnd::new(RC);
    join(&end, &mut other, patient());
    for _ in 0..8 {
        assert_eq!(other.hear(), "waits");
        end.send(end.local(HEAP, 0, 8));
        assert_eq!(end.net.poll(end.cq, 1)[0].status, "SUCCESS");
    }
    assert_eq!(other.hear(), "done");
    end.close();
}

#[test]
fn memory_that_the_system_refuses_is_refused_with_the_reason() {
    if !is_softs_own("memory that the system refuses") {
        return;
    }
    for role in ["refused before", "refused after"] {
        let mut other = start(role);
        let end = NearEnd::new(RC);
        assert_eq!(post_recv(end.qp, 1, &mut [end.local(HEAP, 64, 64)]), 0);
        join(&end, &mut other, patient());
        // What is mapped is reached, and so is what this process does for the other.
        for ends in ["SUCCESS 0", "SUCCESS 0", "SUCCESS 0", "SUCCESS 0", "REM_OP 57"] {
            assert_eq!(other.hear(), ends, "{role}");
        }
        let why = other.hear();
        let me = format!("memory of process {} ", std::process::id());
        assert!(why.starts_with(&me) && why.contains("not permitted"), "{why}");
        end.close();
    }
    let mut other = start("refused receiver");
    let end = NearEnd::new(RC);
    join(&end, &mut other, patient());
    end.send(end.local(HEAP, 0, 100_000));
    assert_is_refused(&end.net.poll(end.cq, 1)[0]);
    end.close();
}

fn assert_is_refused(wc: &Wc) {
    let why = soft_rnic::vendor_err(wc.vendor_err);
    let is_named = why.is_some_and(|why| why.starts_with("the system does not permit"));
    assert!(wc.status == "LOC_PROT" && is_named, "{wc:?}: {why:?}");
}

#[test]
fn a_process_that_changed_its_user_is_refused_peer_memory() {
    if !is_softs_own("memory that the system refuses") {
        return;
    }
    let mut other = start("another user");
    let end = NearEnd::new(RC);
    join(&end, &mut other, patient());
    end.send(end.local(HEAP, 0, 64));
    assert_eq!(end.net.poll(end.cq, 1)[0].status, "SUCCESS");
    other.say("now");
    assert_eq!(other.hear(), "done");
    end.send(end.local(HEAP, 0, 100_000));
    assert_is_refused(&end.net.poll(end.cq, 1)[0]);
    end.close();
}

#[test]
fn a_message_acknowledged_before_a_process_ends_arrives() {
    if !is_softs_own("what was acknowledged before a process ended") {
        // Elsewhere the message may go with its queue pair.
        return;
    }
    for round in 0..10 {
        let mut other = start("curt");
        let end = NearEnd::new(RC);
        assert_eq!(post_recv(end.qp, 1, &mut [end.local(SHARED, 0, 64)]), 0);
        join(&end, &mut other, patient());
        end.send(end.local(HEAP, 0, 64));
        if round % 2 == 0 {
            // Only the device can have seen what it has left.
            other.wait();
        }
        let all = end.net.poll(end.cq, 2);
        assert!(all.iter().all(|wc| wc.status == "SUCCESS"), "{round}: {all:?}");
        end.close();
    }
}

/// Messages go with their requests, go through the ring of data, or are read where they lie.
#[test]
fn a_message_without_a_receive_is_counted_at_the_receiver_only() {
    if !is_softs_own("messages that were not received are counted") {
        return;
    }
    let mut other = start("unready");
    let end = NearEnd::new(UC);
    join(&end, &mut other, ConnectConfig::default());
    let before = soft_rnic::counters();
    for (all, len) in (1..).zip([16, 4_096, 9_000, 100_000]) {
        end.send(end.local(HEAP, 0, len));
        assert_eq!(end.net.poll(end.cq, 1)[0].status, "SUCCESS");
        other.say(&all.to_string());
        assert_eq!(other.hear(), all.to_string());
    }
    let after = soft_rnic::counters();
    assert_eq!((after.dropped, after.missed), (before.dropped, before.missed));
    end.close();
}

#[test]
fn a_child_of_fork_takes_its_copies_down_and_does_no_harm() {
    if !is_softs_own("a child of fork") {
        // A kernel's objects are not the child's to take down.
        return;
    }
    let mut other = start("forking");
    let end = NearEnd::new(RC);
    for id in 0..2 {
        assert_eq!(post_recv(end.qp, id, &mut [end.local(HEAP, 0, 64)]), 0);
    }
    join(&end, &mut other, patient());
    assert_eq!(other.hear(), "0", "how the child ended");
    assert_eq!(end.net.poll(end.cq, 2)[1].status, "SUCCESS");
    assert_eq!(other.hear(), "goes on");
    end.close();
}

#[test]
fn a_receiver_that_sleeps_is_woken_and_does_not_spin() {
    let mut other = start("blocked");
    let end = NearEnd::new(RC);
    join(&end, &mut other, patient());
    for _ in 0..8 {
        wait_until_still(other.pid());
        end.send(end.local(HEAP, 0, 8));
        assert_eq!(other.hear(), "woken");
        assert_eq!(end.net.poll(end.cq, 1)[0].status, "SUCCESS");
    }
    end.close();
}

/// Until no thread of a process runs between two looks, at which all of them sleep. One that spins, or that
/// looks around more often, has run.
fn wait_until_still(pid: i32) {
    let end = Instant::now() + PATIENCE;
    loop {
        wait_until_asleep(pid);
        let before = switches(pid);
        std::thread::sleep(Duration::from_millis(2));
        wait_until_asleep(pid);
        if switches(pid) == before {
            return;
        }
        assert!(Instant::now() < end, "its threads run although nothing arrives");
    }
}

/// Number of times that threads of a process have left their processors.
fn switches(pid: i32) -> u64 {
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).unwrap();
    let status = |entry: std::fs::DirEntry| std::fs::read_to_string(entry.path().join("status"));
    let all = threads.filter_map(Result::ok).filter_map(|entry| status(entry).ok());
    let number = |line: &str| line.split_once("ctxt_switches:")?.1.trim().parse::<u64>().ok();
    all.map(|text| text.lines().filter_map(number).sum::<u64>()).sum()
}

/// Until all threads of a process sleep, twice in a row.
fn wait_until_asleep(pid: i32) {
    wait_until_all(pid, 'S');
}

/// Until all threads of a process are in a state, twice in a row.
fn wait_until_all(pid: i32, state: char) {
    let (mut seen, end) = (0, Instant::now() + PATIENCE);
    while seen < 2 {
        assert!(Instant::now() < end, "not all of its threads are in state {state}");
        let threads = std::fs::read_dir(format!("/proc/{pid}/task")).unwrap();
        let sleeps = |entry: std::fs::DirEntry| {
            let stat = std::fs::read_to_string(entry.path().join("stat")).unwrap_or_default();
            stat.rsplit(')').next().is_some_and(|rest| rest.trim_start().starts_with(state))
        };
        let all = threads.filter_map(Result::ok).all(sleeps);
        seen = if all { seen + 1 } else { 0 };
        std::thread::yield_now();
    }
}
