//! Atomic writes to the memory of another process.
//!
//! Only on soft0: its processes reach each other as those of soft0 do.

mod common;

use common::atomic_write::*;
use common::other::*;
use common::*;
use verbs_sys::*;

const RC: ibv_qp_type = ibv_qp_type::IBV_QPT_RC;
const SHARED: usize = 0;
const HEAP: usize = 1;

/// Long enough for a machine that is busy, and it repeats for ever.
#[test]
fn the_other_process() {
    match role().as_deref() {
        None => return,
        Some("unattached") => return write_unattached(),
        _ => {}
    }
    let end = NearEnd::new(RC);
    join_as_other(&end, patient());
    while let Some(line) = hear() {
        let (memory, rounds) = line.split_once(' ').unwrap();
        let memory: usize = memory.parse().unwrap();
        // SAFETY: the memory is the end's.
        let word = unsafe { word((*end.mr[memory]).addr as u64) };
        watch(word, rounds.parse().unwrap());
        say("all of each");
    }
    end.close();
}

/// Writes a word to memory that is not mapped, where the system permits no access to it.
fn write_unattached() {
    let mut end = NearEnd::new(RC);
    let (to, key) = join_as_other(&end, patient()).memory[HEAP];
    refuse(&[libc::SYS_process_vm_readv, libc::SYS_process_vm_writev]);
    end.heap[..8].copy_from_slice(b"a word!!");
    let mut sges = [end.local(HEAP, 0, 8)];
    assert_eq!(post_send(end.qp, &mut request(&mut sges, to + 8, key)), 0);
    say(end.net.poll(end.cq, 1)[0].status);
    assert_eq!(hear(), None);
    end.close();
}

/// The target's process stores what its sender cannot store.
#[test]
fn a_word_of_unmapped_memory_is_not_copied_there() {
    if !is_softs_own("atomic writes") {
        return;
    }
    let mut other = Other::start("the_other_process", "unattached");
    let end = NearEnd::new(RC);
    join(&end, &mut other, patient());
    assert_eq!((&*other.hear(), &end.heap[7..17]), ("SUCCESS", &b"\0a word!!\0"[..]));
    drop(other);
    end.close();
}

/// In memory that is mapped, and in memory that the other process has to write itself.
#[test]
fn another_process_sees_all_of_a_word() {
    if !is_softs_own("atomic writes") {
        return;
    }
    let mut other = Other::start("the_other_process", "any");
    let mut end = NearEnd::new(RC);
    let far = join(&end, &mut other, patient());
    for (memory, rounds) in [(SHARED, 2_000), (HEAP, 200)] {
        let (to, key) = far.memory[memory];
        other.say(&format!("{memory} {rounds}"));
        for n in 1..=rounds {
            end.heap[..8].copy_from_slice(&doubled(n).to_ne_bytes());
            let mut sges = [end.local(HEAP, 0, 4), end.local(HEAP, 4, 4)];
            assert_eq!(post_send(end.qp, &mut request(&mut sges, to, key)), 0);
            let done = end.net.poll(end.cq, 1)[0];
            assert_eq!((done.status, done.opcode), ("SUCCESS", "ATOMIC_WRITE"));
        }
        assert_eq!(other.hear(), "all of each");
    }
    drop(other);
    end.close();
}

#[test]
fn another_process_refuses_what_is_no_word_of_its_own() {
    if !is_softs_own("atomic writes") {
        return;
    }
    for memory in [SHARED, HEAP] {
        for (offset, len, expected) in [
            (4, 8, "REM_INV_REQ"),
            (0, 0, "REM_INV_REQ"),
            (0, 4, "REM_INV_REQ"),
            (0, 16, "REM_INV_REQ"),
            (BYTES as u64, 8, "REM_ACCESS"),
        ] {
            let mut other = Other::start("the_other_process", "any");
            let end = NearEnd::new(RC);
            let far = join(&end, &mut other, patient());
            let (to, key) = far.memory[memory];
            let mut sges = [end.local(HEAP, 0, len)];
            assert_eq!(post_send(end.qp, &mut request(&mut sges, to + offset, key)), 0);
            assert_eq!(end.net.poll(end.cq, 1)[0].status, expected, "{memory} {offset} {len}");
            drop(other);
            end.close();
        }
    }
}
