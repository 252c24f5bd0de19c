//! A peer that does not keep the rules: whatever it writes, it harms itself at most.

use core::ptr::null_mut;
use core::sync::atomic::Ordering;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use super::*;
use crate::random::Random;

use mapped::Mapped;
use pair::Parts;
use ring::Rings;

/// The slot of the peer that is made up; nobody has it but by chance.
const SLOT: u32 = directory::SLOTS - 1;
const FAR: u32 = SLOT << INDEX_BITS | 0x50;

/// A peer whose memory files are ours to write.
struct Wild {
    rings: Mapped<Rings>,
    directory: Mapped<Directory>,
    pair: Arc<Pair>,
    drain: Drain,
    index: u32,
}

fn copy_of(file: std::os::fd::BorrowedFd<'_>) -> OwnedFd {
    file.try_clone_to_owned().unwrap()
}

impl Wild {
    fn new() -> Wild {
        let rings: Mapped<Rings> = Mapped::create("test").unwrap();
        let directory: Mapped<Directory> = Mapped::create("test").unwrap();
        let flags = rustix::event::EventfdFlags::NONBLOCK;
        let doorbell = rustix::event::eventfd(0, flags).unwrap();
        let me = rustix::process::getpid();
        let pidfd = rustix::process::pidfd_open(me, rustix::process::PidfdFlags::empty());
        let pair = Arc::new(Pair::new(Parts {
            slot: SLOT,
            pid: me.as_raw_pid(),
            pidfd: pidfd.unwrap(),
            theirs: Mapped::open(&copy_of(directory.file().unwrap())).unwrap(),
            incoming: Mapped::open(&copy_of(rings.file().unwrap())).unwrap(),
            outgoing: Mapped::create("test").unwrap(),
            socket: doorbell.try_clone().unwrap(),
            doorbell,
            attaches: true,
        }));
        let mut drain = Drain::default();
        drain.add(Arc::clone(&pair));
        Wild { rings, directory, pair, drain, index: 0 }
    }

    fn scribble(&mut self, random: &mut Random, to: &[u32]) {
        let number = |random: &mut Random| random.below(3) as u32;
        let pick = |random: &mut Random, of: &[u64]| of[random.below(of.len() as u64) as usize];
        let pair = |low: u32, high: u32| u64::from(low) | u64::from(high) << 32;
        let target = pick(random, &[to[0].into(), to[1].into(), 0, 0xff_ffff]) as u32;
        let any = random.next();
        let from = pick(random, &[FAR.into(), FAR.into(), to[0].into(), any]) as u32;
        // What ends it at once comes rarely.
        let more = u64::from(random.below(50) == 0);
        let what = random.below(6 + more) as u8;
        let kinds = [what, random.next() as u8, random.below(3 + more) as u8, 0];
        let lens = [0, 1, 32, 33, 4_096, 8_193, 1 << 20, u64::from(u32::MAX), any];
        let edges = [0, 1, 33, 511 << 10, (512 << 10) - 8, 1 << 40, u64::MAX, random.next()];
        let body = [(); 4].map(|()| pick(random, &edges));
        let words = [
            pair(0, u32::from_le_bytes(kinds)),
            pair(target, from),
            pair(number(random), number(random)),
            pair(random.next() as u32, pick(random, &lens) as u32),
            body[0],
            body[1],
            body[2],
            body[3],
        ];
        self.rings.scribble_request(self.index, words);
        let verdict = [random.below(5 + more) as u8, random.next() as u8, 0, 0];
        let kinds = pair(0, u32::from_le_bytes(verdict));
        let reply = [kinds, pair(target, number(random)), random.next(), 0];
        self.rings.scribble_reply(self.index, reply);
        self.index = self.index.wrapping_add(1);
        let told = Told {
            version: 0,
            pd: 1,
            access: random.next() as u32,
            iova: pick(random, &edges),
            length: pick(random, &edges),
            addr: pick(random, &edges),
            file: (random.below(2) == 0).then(|| directory::InFile {
                fd: random.below(20) as u32,
                inode: random.below(9),
                offset: pick(random, &edges),
                split: pick(random, &edges),
                second: pick(random, &edges),
            }),
        };
        self.directory.tell(pick(random, &edges) as u32, &told);
        if more > 0 {
            self.rings.replies_read.store(random.next() as u32, Ordering::Relaxed);
        }
    }
}

/// A queue pair that is connected to the peer, with receive requests.
fn connected(kind: ibv_qp_type) -> Arc<Qp> {
    let verbs = crate::table();
    // SAFETY: the calls of a program that sets a queue pair up, in their order; nothing
    // is taken down again.
    unsafe {
        let list = (verbs.get_device_list)(null_mut());
        let context = (verbs.open_device)(*list);
        (verbs.free_device_list)(list);
        let pd = (verbs.alloc_pd)(context);
        let cq = (verbs.create_cq)(context, 4_096, null_mut(), null_mut(), 0);
        let mut attr: ibv_qp_init_attr = core::mem::zeroed();
        (attr.send_cq, attr.recv_cq, attr.qp_type) = (cq, cq, kind);
        (attr.cap.max_send_wr, attr.cap.max_recv_wr) = (64, 4_096);
        let qp = (verbs.create_qp)(pd, &mut attr);
        let object = Qp::from_abi(qp).unwrap().keep();
        {
            let (mut sq, mut responder) = (object.sq.lock(), object.responder.lock());
            sq.requester.dest_qpn = FAR;
            sq.requester.reaches_us = true;
            (responder.dest_qpn, responder.peer_is_here) = (FAR, true);
            (responder.access, responder.max_dest_rd_atomic) = (0xf, 1);
            object.connect(&mut sq, &mut responder);
            object.set_state(State::Rts);
        }
        let (len, buffer) = (1 << 16, vec![0_u8; 1 << 16].leak().as_mut_ptr());
        let mr = (verbs.reg_mr)(pd, buffer.cast(), len, 0xf);
        let mut sge = ibv_sge { addr: buffer as u64, length: len as u32, lkey: (*mr).lkey };
        for wr_id in 0..4_096 {
            let (next, mut bad) = (null_mut(), null_mut());
            let mut wr = ibv_recv_wr { wr_id, next, sg_list: &mut sge, num_sge: 1 };
            assert_eq!(ibv_post_recv(qp, &mut wr, &mut bad), 0);
        }
        object
    }
}

#[test]
fn nothing_that_a_peer_writes_harms_anybody_else() {
    let device = crate::device::default_device();
    let mut random = Random::new(7);
    let mut survived = 0;
    for _ in 0..60 {
        let qps = [connected(ibv_qp_type::IBV_QPT_RC), connected(ibv_qp_type::IBV_QPT_UC)];
        let mut wild = Wild::new();
        for _ in 0..500 {
            wild.scribble(&mut random, &[qps[0].num, qps[1].num]);
            let mut after = After::default();
            wild.drain.run(&device, &mut after);
            after.run();
            if wild.pair.is_dead() {
                break;
            }
            survived += 1;
        }
    }
    assert!(survived > 1_000, "{survived}: most of it has to get as far as the queue pairs");
}
