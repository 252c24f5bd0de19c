//! Memory windows between two processes: this program starts itself again.
//!
//! Only on soft0: its processes reach each other as those of soft0 do.

mod common;

use common::mw::*;
use common::other::*;
use common::*;
use verbs_sys::ibv_wr_opcode as W;
use verbs_sys::*;

const RC: ibv_qp_type = ibv_qp_type::IBV_QPT_RC;
const SHARED: usize = 0;
const HEAP: usize = 1;
/// Offset at which the windows begin.
const AT: u64 = 4096;

#[test]
fn the_other_process() {
    match role().as_deref() {
        None => {}
        Some("owner") => be_owner(),
        Some(other) => panic!("{other}"),
    }
}

/// Has two windows, of its shareable memory and of its heap, and does what it is told.
fn be_owner() {
    let mut end = NearEnd::new(RC);
    let mrs = [end.net.mr(end.shared.bytes, BINDABLE), end.net.mr(&mut end.heap, BINDABLE)];
    let mws = [(); 2].map(|()| alloc(end.net.pd, TYPE_2));
    join_as_other(&end, patient());
    let done = |mut wr: ibv_send_wr| {
        assert_eq!(post_send(end.qp, &mut wr), 0);
        end.net.poll(end.cq, 1)[0].status
    };
    while let Some(line) = hear() {
        let words: Vec<&str> = line.split(' ').collect();
        let of = |nth: usize| words.get(nth).map_or(0, |n| n.parse().unwrap());
        let memory = of(1) as usize;
        match words[0] {
            // A memory, the tag of a key, and what is permitted.
            "bind" => {
                let key = key_of(mws[memory]) & !0xff | of(2);
                let to = piece(mrs[memory], AT, 64, of(3));
                say(&format!("{} {key} {}", done(bind_wr(1, mws[memory], key, to)), to.addr));
            }
            "invalidate" => say(done(inv_wr(1, W::IBV_WR_LOCAL_INV, of(1)))),
            "look" => {
                let bytes = if memory == SHARED { &*end.shared.bytes } else { &end.heap };
                let word = bytes[AT as usize..][..8].try_into().unwrap();
                say(&u64::from_ne_bytes(word).to_string());
            }
            "receive" => {
                assert_eq!(post_recv(end.qp, 1, &mut [end.local(SHARED, 65_536, 65_536)]), 0);
                say("ready");
            }
            "received" => {
                let mut wc = ibv_wc::default();
                // SAFETY: the queue is alive; there is room for one.
                while unsafe { ibv_poll_cq(end.cq, 1, &mut wc) } == 0 {
                    std::thread::yield_now();
                }
                // SAFETY: an integer.
                let key = unsafe { wc.__bindgen_anon_1.invalidated_rkey };
                let status = wc_status_name(wc.status);
                say(&format!("{status} {} {key} {}", wc.wc_flags, wc.byte_len));
            }
            other => panic!("{other}"),
        }
    }
    mws.into_iter().for_each(dealloc);
    mrs.into_iter().for_each(|mr| end.net.dereg(mr));
    end.close();
}

/// This process, connected to the owner of the windows.
struct User {
    end: NearEnd,
    owner: Other,
}

impl User {
    fn new() -> User {
        let mut owner = Other::start("the_other_process", "owner");
        let end = NearEnd::new(RC);
        join(&end, &mut owner, patient());
        User { end, owner }
    }

    fn ask(&mut self, line: &str) -> String {
        self.owner.say(line);
        self.owner.hear()
    }

    /// Has a window bound; its address and key.
    fn bound(&mut self, memory: usize, tag: u32, access: u32) -> (u64, u32) {
        let said = self.ask(&format!("bind {memory} {tag} {access}"));
        let words: Vec<&str> = said.split(' ').collect();
        assert_eq!(words[0], "SUCCESS");
        (words[2].parse().unwrap(), words[1].parse().unwrap())
    }

    fn status(&self, op: W, remote: (u64, u32)) -> &'static str {
        self.end.post_rdma(op, self.end.local(HEAP, 0, 8), remote);
        self.end.net.poll(self.end.cq, 1)[0].status
    }

    /// Sends `len` bytes, and has a key invalidated.
    fn send_inv(&self, key: u32, len: u32) -> &'static str {
        let mut sges = [self.end.local(HEAP, 0, len)];
        let mut wr = inv_wr(2, W::IBV_WR_SEND_WITH_INV, key);
        (wr.sg_list, wr.num_sge) = (sges.as_mut_ptr(), 1);
        assert_eq!(post_send(self.end.qp, &mut wr), 0);
        self.end.net.poll(self.end.cq, 1)[0].status
    }

    fn set(&mut self, value: u64) {
        self.end.heap[..8].copy_from_slice(&value.to_ne_bytes());
    }

    fn close(self) {
        drop(self.owner);
        self.end.close();
    }
}

fn is_left_out() -> bool {
    !is_softs_own("memory windows, with statuses of its own")
}

#[test]
fn a_window_of_another_process_is_used_until_it_is_invalidated() {
    if is_left_out() {
        return;
    }
    for memory in [SHARED, HEAP] {
        let mut user = User::new();
        let look = format!("look {memory}");
        for tag in 1..4 {
            let to = user.bound(memory, tag, WRITE | READ | ATOMIC);
            user.set(tag.into());
            assert_eq!(user.status(W::IBV_WR_RDMA_WRITE, to), "SUCCESS");
            assert_eq!(user.ask(&look), tag.to_string());
            assert_eq!(user.status(W::IBV_WR_ATOMIC_FETCH_AND_ADD, to), "SUCCESS");
            assert_eq!(user.ask(&look), (tag + 5).to_string());
            assert_eq!(user.status(W::IBV_WR_RDMA_READ, to), "SUCCESS");
            assert_eq!(user.end.heap[..8], u64::from(tag + 5).to_ne_bytes());
            // The last bytes.
            assert_eq!(user.status(W::IBV_WR_RDMA_WRITE, (to.0 + 56, to.1)), "SUCCESS");
            assert_eq!(user.ask(&format!("invalidate {}", to.1)), "SUCCESS");
        }
        // The first key again, and then an end to that, too.
        let to = user.bound(memory, 1, WRITE | ZERO_BASED);
        user.set(77);
        assert_eq!(user.status(W::IBV_WR_RDMA_WRITE, (0, to.1)), "SUCCESS");
        assert_eq!(user.ask(&look), "77");
        assert_eq!(user.ask(&format!("invalidate {}", to.1)), "SUCCESS");
        user.set(78);
        assert_eq!(user.status(W::IBV_WR_RDMA_WRITE, (0, to.1)), "REM_ACCESS");
        assert_eq!(user.ask(&look), "77");
        user.close();
    }
}

#[test]
fn a_window_of_another_process_permits_only_its_binding() {
    if is_left_out() {
        return;
    }
    for memory in [SHARED, HEAP] {
        let outside = [
            (57, W::IBV_WR_RDMA_WRITE, "REM_ACCESS"),
            (-1, W::IBV_WR_RDMA_WRITE, "REM_ACCESS"),
            (0, W::IBV_WR_RDMA_READ, "REM_ACCESS"),
            (0, W::IBV_WR_ATOMIC_FETCH_AND_ADD, "REM_ACCESS"),
        ];
        for (offset, op, status) in outside {
            let mut user = User::new();
            let (addr, key) = user.bound(memory, 1, WRITE);
            user.set(5);
            assert_eq!(user.status(op, (addr.wrapping_add_signed(offset), key)), status);
            assert_eq!(user.ask(&format!("look {memory}")), "0");
            user.close();
        }
    }
}

#[test]
fn a_message_to_another_process_invalidates_its_window() {
    if is_left_out() {
        return;
    }
    for memory in [SHARED, HEAP] {
        let mut user = User::new();
        let with_inv = ibv_wc_flags::IBV_WC_WITH_INV.0;
        for (tag, len) in [(1, 0), (2, 8), (3, 32), (4, 1000), (5, 20_000)] {
            let to = user.bound(memory, tag, WRITE);
            assert_eq!(user.ask("receive"), "ready");
            user.set(tag.into());
            assert_eq!(user.status(W::IBV_WR_RDMA_WRITE, to), "SUCCESS");
            assert_eq!(user.send_inv(to.1, len), "SUCCESS");
            assert_eq!(user.ask("received"), format!("SUCCESS {with_inv} {} {len}", to.1));
            assert_eq!(user.ask(&format!("look {memory}")), tag.to_string());
        }
        let to = user.bound(memory, 6, WRITE);
        assert_eq!(user.ask("receive"), "ready");
        assert_eq!(user.send_inv(to.1, 8), "SUCCESS");
        assert_eq!(user.status(W::IBV_WR_RDMA_WRITE, to), "REM_ACCESS");
        user.close();
        // A key of another kind, with a message that would be read where it lies.
        let mut user = User::new();
        let (_, key) = user.bound(memory, 1, WRITE);
        assert_eq!(user.ask("receive"), "ready");
        assert_eq!(user.send_inv(key ^ 1, 20_000), "REM_ACCESS");
        assert!(user.ask("received").starts_with("REM_INV_REQ "));
        user.close();
    }
}
