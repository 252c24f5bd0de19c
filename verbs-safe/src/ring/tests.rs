//! Tests of lent bytes, and of the places where READs may land.

use super::*;
use crate::*;
use conn_core::ring::{Geometry, Producer};
use host::sync::SetOnDrop;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Acquire;

const CAPACITY: usize = 4096;
const SIGNALLED: SendFlags = SendFlags { signalled: true, solicited: false, fence: false };

/// A queue pair connected to itself, a ring to read, and one to read into.
struct Both {
    cq: CompletionQueue,
    send: SendQueue,
    source: SourceRing,
    ring: LandingRing,
    _control: QpControl,
}

fn both(config: RingConfig, max_held: u32) -> Both {
    let devices = crate::devices(soft_rnic::table()).unwrap();
    let context = devices[0].open().unwrap();
    let pd = context.alloc_pd().unwrap();
    let gid = context.choose_gid(1, None).unwrap();
    let cq = context.create_cq(CqConfig::new(64)).unwrap();
    let access = RemoteAccess::ALL;
    let config_of_qp =
        QueuePairConfig { access, max_send_wr: 16, ..QueuePairConfig::new(&cq, &cq) };
    let mut qp = pd.create_qp(&config_of_qp, ()).unwrap();
    let end = qp.control.endpoint(1, gid, 1).unwrap();
    qp.control.connect(&end, &ConnectAttr::new(gid.index as u8, 1)).unwrap();
    let source = pd.source_ring(config).unwrap();
    let mut ring = pd.landing_ring(config, max_held).unwrap();
    ring.attach(&mut qp.send).unwrap();
    Both { cq, send: qp.send, source, ring, _control: qp.control }
}

impl Both {
    /// Stages a READ of the bytes at the same offset in the source.
    fn read(&mut self, len: u32) -> Result<(), LandError> {
        let all = self.source.remote();
        let at = self.ring.posted() % CAPACITY as u64;
        let remote = RemoteSpan { addr: all.addr + at, len: all.len - at, ..all };
        self.ring.stage_read(&mut self.send, len, remote, SIGNALLED)
    }

    /// Executes the staged requests.
    fn land(&mut self) -> u64 {
        self.send.post().unwrap();
        let mut batch = CompletionBatch::new(16);
        while self.send.retired_total() < self.send.posted_total() {
            self.cq.poll(&mut batch).unwrap();
            for completion in batch.drain() {
                assert!(completion.is_success());
                self.send.retire(&completion).unwrap();
            }
        }
        self.ring.land(&self.send)
    }

    /// Fills the bytes that will be read next with `value`.
    fn fill(&mut self, len: usize, value: u8) {
        let at = self.ring.posted() as usize % CAPACITY;
        self.source.lend(at, len).unwrap().fill(value);
    }

    fn bring(&mut self, len: u32, value: u8) {
        self.fill(len as usize, value);
        self.read(len).unwrap();
        self.land();
    }
}

#[test]
fn lent_bytes_cross_the_end_of_a_mirrored_ring() {
    let mut both = both(RingConfig::mirrored(CAPACITY), 8);
    for lap in 1..20_u8 {
        both.bring(1000, lap);
        let at = both.ring.passed();
        let bytes = both.ring.lend(at + 8, 990, at + 1000).unwrap();
        assert!(bytes.len() == 990 && bytes.iter().all(|byte| *byte == lap));
    }
}

#[test]
fn nothing_is_read_over_bytes_that_are_lent_or_were_not_passed() {
    let mut both = both(RingConfig::mirrored(CAPACITY), 8);
    both.bring(CAPACITY as u32, 1);
    let not_free = |free| Err(LandError::NotFree { len: 8, free });
    assert_eq!(both.read(8), not_free(0));
    let first = both.ring.lend(0, 16, 24).unwrap();
    let second = both.ring.lend(24, 8, 32).unwrap();
    both.ring.pass(1024);
    drop(second);
    assert_eq!((both.ring.freed(), both.read(8)), (0, not_free(0)));
    assert!(first.iter().all(|byte| *byte == 1));
    drop(first);
    assert_eq!(both.ring.freed(), 1024);
    both.bring(1024, 2);
    assert_eq!(both.read(8), not_free(0));
}

#[test]
fn forgotten_bytes_are_not_overwritten_and_outlive_the_ring() {
    let mut both = both(RingConfig::mirrored(CAPACITY), 8);
    both.bring(64, 1);
    std::mem::forget(both.ring.lend(0, 8, 16).unwrap());
    let kept = both.ring.lend(16, 8, 24).unwrap();
    both.ring.pass(64);
    assert_eq!((both.ring.freed(), both.ring.is_home()), (0, false));
    let left = CAPACITY as u64 - 64;
    let asked = CAPACITY as u32;
    assert_eq!(both.read(asked), Err(LandError::NotFree { len: asked, free: left }));
    drop(both);
    assert_eq!(*kept, [1; 8]);
}

#[test]
fn only_bytes_that_have_landed_are_seen() {
    let mut both = both(RingConfig::mirrored(CAPACITY), 8);
    both.fill(64, 7);
    both.read(64).unwrap();
    assert_eq!((both.ring.view(0, 1), both.ring.word(0), both.ring.landed()), (None, None, 0));
    assert_eq!(both.ring.lend(0, 1, 8).unwrap_err(), LendError::NotLanded);
    both.ring.pass(8);
    assert_eq!(both.ring.passed(), 0);
    both.land();
    assert_eq!((both.ring.view(0, 64), both.ring.view(0, 65)), (Some(&[7; 64][..]), None));
    assert_eq!(both.ring.word(56), Some(0x0707_0707_0707_0707));
    assert_eq!(
        (both.ring.word(57), both.ring.word(60), both.ring.word(u64::MAX)),
        (None, None, None)
    );
    both.ring.pass(8);
    assert_eq!((both.ring.view(0, 8), both.ring.view(8, 0)), (None, Some(&[][..])));
    // Before the passed position, behind the landed one, misaligned, or with the end of an earlier
    // piece.
    for (position, len, end) in [(0, 8, 16), (8, 57, 72), (8, 1, 9), (8, 9, 16), (8, 0, 8)] {
        assert_eq!(both.ring.lend(position, len, end).unwrap_err(), LendError::NotLanded);
    }
    assert_eq!(both.ring.passed(), 8);
}

#[test]
fn a_plain_ring_ends_where_it_ends() {
    let mut both = both(RingConfig::plain(CAPACITY), 8);
    both.bring(CAPACITY as u32 - 8, 1);
    both.ring.pass(CAPACITY as u64 - 8);
    assert_eq!(both.read(16), Err(LandError::CrossesEnd { len: 16, left: 8 }));
    both.bring(8, 2);
    both.bring(8, 3);
    assert_eq!(both.ring.view(CAPACITY as u64 - 8, 16), None);
    assert_eq!(both.ring.view(CAPACITY as u64 - 8, 8), Some(&[2; 8][..]));
    assert!(both.source.lend(CAPACITY - 8, 16).is_err());
    assert!(both.source.lend(usize::MAX, 2).is_err());
}

#[test]
fn no_more_is_lent_at_once_than_was_agreed() {
    let mut both = both(RingConfig::mirrored(CAPACITY), 2);
    both.bring(64, 1);
    let a = both.ring.lend(0, 8, 8).unwrap();
    let b = both.ring.lend(8, 8, 16).unwrap();
    assert_eq!(both.ring.lend(16, 8, 24).unwrap_err(), LendError::TooMany);
    std::thread::spawn(move || drop(a)).join().unwrap();
    let c = both.ring.lend(16, 8, 24).unwrap();
    both.ring.free(c);
    both.ring.free(b);
    assert_eq!((both.ring.freed(), both.ring.is_home()), (24, true));
}

#[test]
fn another_rings_bytes_and_queues_are_nothing_to_it() {
    let (mut here, mut there) =
        (both(RingConfig::mirrored(CAPACITY), 2), both(RingConfig::mirrored(CAPACITY), 2));
    there.bring(16, 1);
    let bytes = there.ring.lend(0, 8, 16).unwrap();
    here.ring.free(bytes);
    assert_eq!(there.ring.freed(), 16);
    let remote = here.source.remote();
    let refused = here.ring.stage_read(&mut there.send, 8, remote, SIGNALLED);
    assert_eq!(refused, Err(LandError::OtherQueue));
    here.fill(8, 1);
    here.read(8).unwrap();
    assert_eq!(here.ring.land(&there.send), 0);
    assert_eq!(here.ring.attach(&mut here.send), Err(AttachError::Attached));
}

#[test]
fn what_a_failed_read_should_have_brought_never_lands() {
    let mut both = both(RingConfig::mirrored(CAPACITY), 2);
    both.bring(16, 1);
    let wrong = RemoteSpan { rkey: both.source.remote().rkey ^ 0x55, ..both.source.remote() };
    both.ring.stage_read(&mut both.send, 16, wrong, SIGNALLED).unwrap();
    both.read(16).unwrap();
    both.send.post().unwrap();
    let mut batch = CompletionBatch::new(16);
    while both.send.retired_total() < both.send.posted_total() {
        both.cq.poll(&mut batch).unwrap();
        batch.drain().for_each(|completion| assert!(both.send.retire(&completion).is_ok()));
    }
    assert_eq!((both.ring.land(&both.send), both.ring.view(16, 8)), (16, None));
}

#[test]
fn messages_are_copied_as_they_are_and_nothing_beside_them() {
    for config in [RingConfig::mirrored(8192), RingConfig::plain(8192)] {
        let devices = crate::devices(soft_rnic::table()).unwrap();
        let mut ring = devices[0].open().unwrap().alloc_pd().unwrap().source_ring(config).unwrap();
        for len in (0..70).chain([511, 512, 513, 1023, 1024, 4000, 8191, 8192]) {
            let from: Vec<u8> = (0..len).map(|i| (i * 7 + len) as u8).collect();
            let offset = if config.is_mirrored { 5000 } else { 8192 - len };
            ring.lend(0, 8192).unwrap().fill(0xee);
            ring.copy_in(offset, &from).unwrap();
            assert_eq!(ring.bytes(offset, len).unwrap(), from);
            let kept = ring.bytes(0, 8192).unwrap().iter().filter(|&&b| b == 0xee).count();
            assert_eq!(kept, 8192 - len + from.iter().filter(|&&b| b == 0xee).count());
        }
        assert!(ring.copy_in(1, &[0; 8193]).is_err());
        assert!(ring.copy_in(3 * 8192, &[0; 600]).is_err());
    }
}

#[test]
fn a_ring_that_is_shared_lends_nothing() {
    let devices = crate::devices(soft_rnic::table()).unwrap();
    let pd = devices[0].open().unwrap().alloc_pd().unwrap();
    let mut ring = pd.source_ring(RingConfig::mirrored(4096)).unwrap();
    ring.lend(8, 5).unwrap().copy_from_slice(b"hello");
    let shared = ring.share();
    assert!(ring.lend(8, 1).is_err() && ring.bytes(0, 1).is_err());
    assert!(ring.store_u64(0, 1).is_err() && ring.copy_in(0, b"x").is_err());
    let mut bytes = [0; 5];
    shared.copy_out(4096 + 8, &mut bytes).unwrap();
    assert_eq!((&bytes, shared.len()), (b"hello", 8192));
}

#[test]
fn a_ring_that_cannot_be_says_why() {
    let devices = crate::devices(soft_rnic::table()).unwrap();
    let pd = devices[0].open().unwrap().alloc_pd().unwrap();
    let why = |config| pd.source_ring(config).unwrap_err().to_string();
    assert!(why(RingConfig::plain(5000)).contains("a power of two"));
    assert!(why(RingConfig::mirrored(64)).contains("whole pages"));
    assert!(why(RingConfig::mirrored(1 << 50)).contains("mirror"));
    let max_held = pd.landing_ring(RingConfig::plain(4096), 3).unwrap_err();
    assert_eq!(max_held, RegisterError::MaxHeld(3));
}

/// For any operations in any order, lent bytes do not change.
#[test]
fn lent_bytes_never_change() {
    for seed in 0..40_u64 {
        let config = match seed % 2 {
            0 => RingConfig::mirrored(CAPACITY),
            _ => RingConfig::plain(CAPACITY),
        };
        any_history(both(config, 16), seed);
    }
}

fn any_history(mut both: Both, seed: u64) {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut random = |n: u64| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state % n
    };
    let mut held: Vec<(RingBytes, Vec<u8>)> = Vec::new();
    for step in 0..2000_u64 {
        match random(6) {
            0 | 1 => {
                let len = random(1200) as u32;
                let at = both.ring.posted() as usize % CAPACITY;
                if let Ok(bytes) = both.source.lend(at, len as usize) {
                    bytes.fill(step as u8);
                }
                if both.read(len).is_ok() {
                    both.land();
                }
            }
            2 | 3 => {
                let position = both.ring.passed() + random(64);
                let (len, end) = (random(600) as u32, (position + random(700)) & !7);
                if let Ok(bytes) = both.ring.lend(position, len, end) {
                    let copy = bytes.to_vec();
                    held.push((bytes, copy));
                }
            }
            4 if !held.is_empty() => {
                let (bytes, copy) = held.swap_remove(random(held.len() as u64) as usize);
                assert_eq!(*bytes, *copy, "seed {seed}, step {step}");
                if random(2) == 0 { both.ring.free(bytes) } else { drop(bytes) }
            }
            _ => both.ring.pass(both.ring.passed() + random(300)),
        }
    }
    held.iter().for_each(|(bytes, copy)| assert_eq!(**bytes, **copy, "seed {seed}"));
}

#[test]
fn only_a_ring_of_that_shape_that_has_lent_nothing_is_shared() {
    let geometry = |capacity| Geometry::mirrored(capacity, 100).unwrap();
    let mut both = both(RingConfig::mirrored(CAPACITY), 8);
    both.bring(64, 1);
    let ring = both.ring.share(geometry(8192)).unwrap_err();
    let ring = ring.share(Geometry::plain(CAPACITY as u64, 100).unwrap()).unwrap_err();
    let (ring, claims) = ring.share(geometry(CAPACITY as u64)).unwrap();
    assert_eq!((ring.landed(), ring.claimed(), claims.max_payload()), (64, 0, 100));
    let mut both = self::both(RingConfig::mirrored(CAPACITY), 8);
    both.bring(64, 1);
    drop(both.ring.lend(0, 8, 16).unwrap());
    assert_eq!(both.ring.share(geometry(CAPACITY as u64)).unwrap_err().passed(), 16);
}

/// Each record goes to one thread that claims it, whole and once, and does not change until
/// it is freed, however READs cut it.
#[test]
fn several_threads_claim_what_lands() {
    for is_mirrored in [true, false] {
        let config = RingConfig { is_mirrored, ..RingConfig::mirrored(CAPACITY) };
        let geometry = match is_mirrored {
            true => Geometry::mirrored(CAPACITY as u64, 300),
            false => Geometry::plain(CAPACITY as u64, 300),
        };
        claimed_by_three(config, geometry.unwrap(), 3000);
    }
}

fn claimed_by_three(config: RingConfig, geometry: Geometry, count: u32) {
    let Both { cq, mut send, mut source, ring, _control } = both(config, 16);
    let (mut ring, claims) = ring.share(geometry).unwrap();
    let (is_over, mut sender) = (AtomicBool::new(false), Producer::new(geometry));
    let sums = std::thread::scope(|scope| {
        let receive = || {
            let (mut sum, mut held) = (0, Vec::new());
            while !is_over.load(Acquire) {
                match claims.take().unwrap() {
                    Claim::Bytes(bytes) => {
                        let number = u32::from_le_bytes(bytes[..4].try_into().unwrap());
                        sum += u64::from(number);
                        held.push((bytes, number));
                    }
                    Claim::Nothing | Claim::TooMany => host::thread::yield_now(),
                }
                let shown = claims.show(|bytes| {
                    sum += u64::from(u32::from_le_bytes(bytes[..4].try_into().unwrap()));
                });
                let is_idle = !matches!(shown, Ok(Claim::Bytes(())));
                if held.len() > 4 || is_idle && !held.is_empty() {
                    let (bytes, number) = held.swap_remove(sum as usize % held.len());
                    assert!(bytes[4..].iter().all(|byte| *byte == number as u8), "{number}");
                }
            }
            sum
        };
        let threads = [(); 3].map(|()| scope.spawn(receive));
        let over = SetOnDrop(&is_over);
        let (mut batch, mut sent, mut posted) = (CompletionBatch::new(16), 0, 0);
        while sent < count || ring.claimed() < sender.tail() {
            let len = 4 + sent % 290;
            if sent < count
                && let Ok(grant) = sender.reserve(len)
            {
                let at = grant.payload().offset as usize;
                let bytes = source.lend(at, len as usize).unwrap();
                bytes.fill(sent as u8);
                bytes[..4].copy_from_slice(&sent.to_le_bytes());
                let committed = sender.commit(grant, len).unwrap();
                for header in [Some(committed.header), committed.skip].into_iter().flatten() {
                    source.store_u64(header.offset as usize, header.word).unwrap();
                }
                sent += 1;
            }
            // Pieces of 200 bytes at most, which cut records, and end with the ring.
            let offset = posted % CAPACITY as u64;
            let len = (sender.tail() - posted).min(200).min(CAPACITY as u64 - offset);
            let all = source.remote();
            let remote = RemoteSpan { addr: all.addr + offset, len: all.len - offset, ..all };
            if len > 0 && ring.stage_read(&mut send, len as u32, remote, SIGNALLED).is_ok() {
                posted += len;
                send.post().unwrap();
            }
            cq.poll(&mut batch).unwrap();
            batch.drain().for_each(|completion| assert!(send.retire(&completion).is_ok()));
            ring.land(&send, sender.tail());
            sender.on_head(ring.freed()).unwrap();
        }
        drop(over);
        threads.map(|thread| thread.join().unwrap())
    });
    assert_eq!(sums.iter().sum::<u64>(), u64::from(count) * u64::from(count - 1) / 2);
    assert_eq!(ring.freed(), sender.tail());
}
