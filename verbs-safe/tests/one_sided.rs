//! WRITE, READ, atomics, and the regions that they reach.
//!
//! Only on soft0, rxe0: it takes devices of soft-rnic by no other name.

mod common;

use common::*;
use verbs_safe::*;

struct Rig {
    a: TestEnd,
    b: TestEnd,
    region: SharedRegion,
}

fn rig(backing: impl Into<Backing>, access: RemoteAccess) -> Rig {
    let pd = context().alloc_pd().unwrap();
    let (a, b) = pair_on(&pd, PairConfig { max_inline: 32, ..PairConfig::default() });
    let config = SharedRegionConfig { access, on_demand: false };
    Rig { a, b, region: pd.register_shared(backing, config).unwrap() }
}

impl Rig {
    fn new() -> Rig {
        Rig::with(RemoteAccess::ALL)
    }

    fn with(access: RemoteAccess) -> Rig {
        rig(Mapping::new(4096).unwrap(), access)
    }

    /// Executes one operation; its status.
    fn run(&mut self, op: SendOp) -> WcStatus {
        self.a.send.stage(op, true).unwrap();
        self.a.send.post().unwrap();
        self.a.status_of_one()
    }

    /// As `run`, of a request whose bytes are in a region.
    fn run_at(&mut self, region: RegionId, offset: usize, op: SendOp) -> WcStatus {
        let flags = SendFlags { signalled: true, ..SendFlags::default() };
        self.a.send.stage_at(region, offset, op, flags).unwrap();
        self.a.send.post().unwrap();
        self.a.status_of_one()
    }

    fn another_region(&self) -> SharedRegion {
        let config = SharedRegionConfig { access: RemoteAccess::ALL, on_demand: false };
        self.region_pd().register_shared(Mapping::new(4096).unwrap(), config).unwrap()
    }

    fn landed(&self) -> &[u8] {
        self.a.send.landed(self.a.send.retired_total()).expect("something landed")
    }
}

#[test]
fn a_write_arrives_without_a_completion_at_the_receiver() {
    let mut rig = Rig::new();
    for len in [5u32, 32, 33, 256] {
        let message: Vec<u8> = (0..len).map(|i| i as u8 ^ 0x5a).collect();
        rig.a.send.next_slot().unwrap()[..message.len()].copy_from_slice(&message);
        let remote = rig.region.remote(100, len as usize).unwrap();
        assert_eq!(rig.run(SendOp::Write { len, remote }), WcStatus::SUCCESS);
        let mut bytes = vec![0; message.len()];
        rig.region.copy_out(100, &mut bytes).unwrap();
        assert_eq!(bytes, message);
    }
    assert!(rig.b.is_quiet());
}

#[test]
fn a_received_write_with_immediate_shows_an_empty_message() {
    let mut rig = Rig::new();
    rig.a.send.next_slot().unwrap()[..4].copy_from_slice(b"data");
    let remote = rig.region.remote(8, 4).unwrap();
    let op = SendOp::WriteImm { len: 4, imm: 77, remote };
    assert_eq!(rig.run(op), WcStatus::SUCCESS);
    rig.b.recvs(1, |recv, completion| {
        assert!(completion.is_write_imm());
        assert_eq!((completion.imm(), completion.byte_len()), (Some(77), 4));
        let message = recv.take(completion).unwrap();
        assert!(message.is_empty(), "the bytes are in the region");
    });
    let mut bytes = [0; 4];
    rig.region.copy_out(8, &mut bytes).unwrap();
    assert_eq!(&bytes, b"data");
}

#[test]
fn a_read_lands_in_its_slot_until_the_slot_is_lent_again() {
    let mut rig = Rig::new();
    rig.region.copy_in(3, b"far away").unwrap();
    let remote = rig.region.remote(3, 8).unwrap();
    assert_eq!(rig.run(SendOp::Read { len: 8, remote }), WcStatus::SUCCESS);
    assert_eq!(rig.landed(), b"far away");
    assert_eq!(rig.a.send.landed(0), None);
    assert_eq!(rig.a.send.landed(2), None, "not staged yet");
    for _ in 0..7 {
        assert_eq!(rig.run(SendOp::Read { len: 1, remote }), WcStatus::SUCCESS);
    }
    assert_eq!(rig.a.send.landed(1), Some(&b"far away"[..]), "8 slots, 8 requests");
    rig.a.send.next_slot().unwrap()[0] = 0;
    assert_eq!(rig.a.send.landed(1), None, "its slot was lent");
    assert_eq!(rig.a.send.landed(2), Some(&b"f"[..]));
}

#[test]
fn a_slot_that_another_read_lands_in_is_not_shown() {
    let pd = context().alloc_pd().unwrap();
    let (mut a, _b) = pair_on(&pd, PairConfig { send_slots: 2, ..PairConfig::default() });
    let config = SharedRegionConfig { access: RemoteAccess::ALL, on_demand: false };
    let region = pd.register_shared(Mapping::new(4096).unwrap(), config).unwrap();
    let remote = region.remote(0, 8).unwrap();
    for _ in 0..2 {
        a.send.stage(SendOp::Read { len: 8, remote }, true).unwrap();
        a.send.post().unwrap();
        a.sent();
    }
    assert!(a.send.landed(1).is_some());
    // No call of `next_slot`: the device fills the slot.
    a.send.stage(SendOp::Read { len: 8, remote }, true).unwrap();
    assert_eq!(a.send.landed(1), None, "the device may write there from now on");
    assert!(a.send.landed(2).is_some());
}

#[test]
fn what_has_not_landed_is_not_shown() {
    let mut rig = Rig::new();
    let remote = rig.region.remote(0, 8).unwrap();
    rig.a.send.stage(SendOp::Read { len: 8, remote }, true).unwrap();
    assert_eq!(rig.a.send.landed(1), None, "staged only");
    rig.a.send.post().unwrap();
    assert_eq!(rig.a.send.landed(1), None, "not retired");
    rig.a.sent();
    assert!(rig.a.send.landed(1).is_some());
    rig.a.send.stage(SendOp::Write { len: 8, remote }, true).unwrap();
    rig.a.send.post().unwrap();
    rig.a.sent();
    assert_eq!(rig.a.send.landed(2), None, "nothing lands of a WRITE");
}

#[test]
fn atomics_return_the_old_value_and_change_the_word() {
    let mut rig = Rig::new();
    rig.region.store_u64(16, 40).unwrap();
    let remote = rig.region.remote(16, 8).unwrap();
    assert_eq!(rig.run(SendOp::FetchAdd { remote, add: 2 }), WcStatus::SUCCESS);
    assert_eq!(rig.landed(), 40u64.to_ne_bytes());
    assert_eq!(rig.region.load_u64(16), Ok(42));
    let swap = |compare| SendOp::CmpSwap { remote, compare, swap: 7 };
    assert_eq!(rig.run(swap(41)), WcStatus::SUCCESS);
    assert_eq!((rig.landed(), rig.region.load_u64(16)), (&42u64.to_ne_bytes()[..], Ok(42)));
    assert_eq!(rig.run(swap(42)), WcStatus::SUCCESS);
    assert_eq!((rig.landed(), rig.region.load_u64(16)), (&42u64.to_ne_bytes()[..], Ok(7)));
}

#[test]
fn an_access_the_region_forbids_fails_at_the_requester() {
    let read_only = RemoteAccess { read: true, ..RemoteAccess::NONE };
    let mut rig = Rig::with(read_only);
    let remote = rig.region.remote(0, 8).unwrap();
    assert_eq!(rig.run(SendOp::Read { len: 8, remote }), WcStatus::SUCCESS);
    assert_eq!(rig.run(SendOp::Write { len: 8, remote }), WcStatus::REM_ACCESS);
    assert_eq!(rig.a.control.state(), Ok(QpState::ERR));
}

#[test]
fn a_failed_read_has_landed_nothing() {
    let mut rig = Rig::with(RemoteAccess { write: true, ..RemoteAccess::NONE });
    let remote = rig.region.remote(0, 8).unwrap();
    assert_eq!(rig.run(SendOp::Read { len: 8, remote }), WcStatus::REM_ACCESS);
    assert_eq!(rig.a.send.landed(1), None);
}

#[test]
fn a_key_of_a_region_that_is_gone_reaches_nothing() {
    let mut rig = Rig::new();
    let remote = rig.region.remote(0, 8).unwrap();
    let pd = rig.region_pd();
    let other = SharedRegionConfig { access: RemoteAccess::ALL, on_demand: false };
    let gone = std::mem::replace(
        &mut rig.region,
        pd.register_shared(Mapping::new(4096).unwrap(), other).unwrap(),
    );
    drop(gone);
    assert_eq!(rig.run(SendOp::Write { len: 8, remote }), WcStatus::REM_ACCESS);
}

impl Rig {
    fn region_pd(&self) -> ProtectionDomain {
        self.a.control.protection_domain()
    }
}

#[test]
fn a_write_across_the_seam_of_a_mirror_is_in_both_copies() {
    let mirrored = Mirrored::new(4096).unwrap();
    let capacity = mirrored.capacity();
    let mut rig = rig(mirrored, RemoteAccess::ALL);
    assert_eq!(rig.region.len(), 2 * capacity);
    let message: Vec<u8> = (0..200).collect();
    rig.a.send.next_slot().unwrap()[..200].copy_from_slice(&message);
    let remote = rig.region.remote(capacity - 96, 200).unwrap();
    assert_eq!(rig.run(SendOp::Write { len: 200, remote }), WcStatus::SUCCESS);
    let mut bytes = [0; 104];
    rig.region.copy_out(0, &mut bytes).unwrap();
    assert_eq!(bytes[..], message[96..]);
    rig.region.copy_out(2 * capacity - 96, &mut bytes[..96]).unwrap();
    assert_eq!(bytes[..96], message[..96]);
}

#[test]
fn regions_refuse_what_is_outside_or_askew() {
    let rig = Rig::new();
    let region = &rig.region;
    let outside = RegionError::OutOfBounds { offset: 4090, len: 8, region_len: 4096 };
    assert_eq!(region.load_u64(4090), Err(outside));
    assert_eq!(region.remote(4090, 8), Err(outside));
    assert_eq!(region.copy_out(4090, &mut [0; 8]), Err(outside));
    assert_eq!(region.copy_in(4090, &[0; 8]), Err(outside));
    assert_eq!(region.fill(4090, 8, 1), Err(outside));
    let behind = RegionError::OutOfBounds { offset: 4096, len: 1, region_len: 4096 };
    assert_eq!(region.observe_byte(4096), Err(behind));
    assert_eq!(region.publish_byte(4096, 1), Err(behind));
    assert!(region.copy_in(usize::MAX, &[0; 8]).is_err());
    assert!(region.remote(8, usize::MAX).is_err());
    let askew = RegionError::Misaligned { offset: 4, alignment: 8 };
    assert_eq!(region.load_u64(4), Err(askew));
    assert_eq!(region.store_u64(4, 0), Err(askew));
    assert!(region.remote(4096, 0).is_ok(), "nothing, at the end");
}

#[test]
fn copies_in_and_out_agree_at_every_offset_and_length() {
    let rig = Rig::new();
    for offset in 0..10 {
        for len in 0..40 {
            let bytes: Vec<u8> = (0..len).map(|i| (i * 7 + offset) as u8 | 1).collect();
            rig.region.copy_in(0, &[0; 64]).unwrap();
            rig.region.copy_in(offset, &bytes).unwrap();
            let mut all = [0xff; 64];
            rig.region.copy_out(0, &mut all).unwrap();
            assert!(all[..offset].iter().chain(&all[offset + len..]).all(|b| *b == 0));
            let mut back = vec![0; len];
            rig.region.copy_out(offset, &mut back).unwrap();
            assert_eq!((&all[offset..offset + len], &back), (&bytes[..], &bytes));
            rig.region.fill(offset, len, 0xa5).unwrap();
            rig.region.copy_out(0, &mut all).unwrap();
            let filled = |(at, byte): (usize, &u8)| {
                *byte == if (offset..offset + len).contains(&at) { 0xa5 } else { 0 }
            };
            assert!(all.iter().enumerate().all(filled), "{len} at {offset}");
        }
    }
}

#[test]
fn neighbours_in_a_word_are_left_alone() {
    let rig = Rig::new();
    let region = &rig.region;
    std::thread::scope(|scope| {
        for at in 0..3 {
            scope.spawn(move || {
                for i in 0..20_000u32 {
                    let value = i as u8;
                    match i % 3 {
                        0 => region.publish_byte(at, value).unwrap(),
                        1 => region.copy_in(at, &[value]).unwrap(),
                        _ => region.fill(at, 1, value).unwrap(),
                    }
                    assert_eq!(region.observe_byte(at), Ok(value), "another write changed it");
                }
            });
        }
    });
}

#[test]
fn requests_send_from_a_region_and_land_in_one() {
    let mut rig = Rig::new();
    let near = rig.another_region();
    let local = rig.a.send.attach(&near).unwrap();
    near.copy_in(10, b"out and back").unwrap();
    let remote = rig.region.remote(77, 12).unwrap();
    assert_eq!(rig.run_at(local, 10, SendOp::Write { len: 12, remote }), WcStatus::SUCCESS);
    let write_imm = SendOp::WriteImm { len: 12, imm: 12, remote };
    assert_eq!(rig.run_at(local, 10, write_imm), WcStatus::SUCCESS);
    rig.b.recvs(1, |_, completion| assert_eq!(completion.imm(), Some(12)));
    assert_eq!(rig.run_at(local, 4084, SendOp::Read { len: 12, remote }), WcStatus::SUCCESS);
    let mut bytes = [0; 12];
    near.copy_out(4084, &mut bytes).unwrap();
    assert_eq!(&bytes, b"out and back");
    rig.region.store_u64(0, 5).unwrap();
    let remote = rig.region.remote(0, 8).unwrap();
    assert_eq!(rig.run_at(local, 8, SendOp::FetchAdd { remote, add: 1 }), WcStatus::SUCCESS);
    assert_eq!((near.load_u64(8), rig.region.load_u64(0)), (Ok(5), Ok(6)));
}

#[test]
fn what_landed_in_a_region_is_not_shown_as_a_slots() {
    let mut rig = Rig::new();
    rig.region.copy_in(0, b"slot").unwrap();
    let near = rig.another_region();
    let local = rig.a.send.attach(&near).unwrap();
    let remote = rig.region.remote(0, 4).unwrap();
    assert_eq!(rig.run_at(local, 0, SendOp::Read { len: 4, remote }), WcStatus::SUCCESS);
    assert_eq!(rig.a.send.landed(1), None, "before the first slot was used");
    assert_eq!(rig.run(SendOp::Read { len: 4, remote }), WcStatus::SUCCESS);
    assert_eq!(rig.run_at(local, 0, SendOp::Read { len: 4, remote }), WcStatus::SUCCESS);
    assert_eq!(rig.a.send.landed(2), Some(&b"slot"[..]));
    assert_eq!(rig.a.send.landed(3), None);
}

#[test]
fn requests_that_reach_over_a_local_region_are_refused() {
    let mut rig = Rig::new();
    let near = rig.another_region();
    let local = rig.a.send.attach(&near).unwrap();
    let remote = rig.region.remote(0, 4096).unwrap();
    let flags = SendFlags { signalled: true, ..SendFlags::default() };
    let mut refused =
        |offset, len| rig.a.send.stage_at(local, offset, SendOp::Write { len, remote }, flags);
    let outside = |offset, len| Err(StageError::OutsideRegion { offset, len, region_len: 4096 });
    assert_eq!(refused(4095, 2), outside(4095, 2));
    assert_eq!(refused(4097, 0), outside(4097, 0));
    assert_eq!(refused(usize::MAX, 4096), outside(usize::MAX, 4096));
    let too_short = StageError::RemoteTooShort { len: 4097, remote_len: 4096 };
    assert_eq!(refused(0, 4097), Err(too_short));
    assert_eq!(refused(4096, 0), Ok(()), "nothing, at the end");
    for op in [SendOp::Send { len: 1 }, SendOp::SendImm { len: 1, imm: 0 }] {
        let staged = rig.a.send.stage_at(local, 0, op, flags);
        assert_eq!(staged, Err(StageError::SendFromRegion));
    }
    assert_eq!(rig.a.send.staged_total(), 1, "what was refused has changed nothing");
}

#[test]
fn a_detached_region_is_kept_until_its_requests_are_retired() {
    let mut rig = Rig::new();
    let near = rig.another_region();
    let span = near.remote(0, 8).unwrap();
    let local = rig.a.send.attach(&near).unwrap();
    drop(near);
    let remote = rig.region.remote(0, 8).unwrap();
    let flags = SendFlags { signalled: true, ..SendFlags::default() };
    rig.a.send.stage_at(local, 0, SendOp::Read { len: 8, remote }, flags).unwrap();
    assert!(rig.a.send.detach(local));
    assert!(!rig.a.send.detach(local), "it is detached already");
    let again = rig.a.send.stage_at(local, 0, SendOp::Read { len: 8, remote }, flags);
    assert_eq!(again, Err(StageError::UnknownRegion));
    rig.a.send.post().unwrap();
    assert_eq!(rig.b.write(span), WcStatus::SUCCESS, "not retired: it is still registered");
    rig.a.sent();
    assert_eq!(rig.b.write(span), WcStatus::REM_ACCESS, "its key reaches nothing now");
}

#[test]
fn regions_of_another_domain_and_of_another_queue_are_refused() {
    let mut rig = Rig::new();
    let other = rig.a.control.context().alloc_pd().unwrap();
    let foreign =
        other.register_shared(Mapping::new(4096).unwrap(), SharedRegionConfig::default()).unwrap();
    let error = rig.a.send.attach(&foreign).unwrap_err();
    assert_eq!(error, AttachError::OtherDomain { what: "region" });
    let near = rig.another_region();
    let of_a = rig.a.send.attach(&near).unwrap();
    let of_b = rig.b.send.attach(&near).unwrap();
    assert_ne!(of_a, of_b);
    let flags = SendFlags::default();
    let remote = near.remote(0, 1).unwrap();
    let staged = rig.a.send.stage_at(of_b, 0, SendOp::Write { len: 1, remote }, flags);
    assert_eq!(staged, Err(StageError::UnknownRegion));
    assert!(!rig.a.send.detach(of_b));
}

#[test]
fn as_many_reads_as_the_device_permits_are_in_flight() {
    let pd = context().alloc_pd().unwrap();
    let device = pd.context().attr().unwrap();
    let limit = device.max_qp_init_rd_atom.min(device.max_qp_rd_atom).min(255);
    let shape =
        PairConfig { sends: 256, send_slots: 256, rd_atomic: limit as u8, ..PairConfig::default() };
    let (mut a, b) = pair_on(&pd, shape);
    assert_eq!(u32::from(b.control.query().unwrap().max_dest_rd_atomic), limit);
    let config = SharedRegionConfig { access: RemoteAccess::ALL, on_demand: false };
    let region = pd.register_shared(Mapping::new(1 << 16).unwrap(), config).unwrap();
    for i in 0..256 {
        region.store_u64(256 * i, i as u64).unwrap();
        let remote = region.remote(256 * i, 256).unwrap();
        a.send.stage(SendOp::Read { len: 256, remote }, i % 64 == 63).unwrap();
    }
    a.send.post().unwrap();
    a.sends(4, |send, completion| {
        assert_eq!(completion.status(), WcStatus::SUCCESS);
        send.retire(&completion).unwrap();
    });
    for i in 0..256u64 {
        assert_eq!(a.send.landed(i + 1).unwrap()[..8], i.to_ne_bytes());
    }
}

#[test]
fn on_demand_paging_is_had_or_its_lack_is_named() {
    let context = context();
    let pd = context.alloc_pd().unwrap();
    let config = SharedRegionConfig { access: RemoteAccess::ALL, on_demand: true };
    let odp = context.attr().unwrap().odp;
    match pd.register_shared(Mapping::new(4096).unwrap(), config) {
        Ok(_) => assert!(odp.supported),
        Err(RegisterError::NoOnDemandPaging { device, .. }) => {
            assert!(!(odp.supported && odp.read && odp.write && odp.atomic));
            assert_eq!(device, context.device_name());
        }
        Err(other) => panic!("{other}"),
    }
}

#[test]
fn a_word_published_last_is_seen_after_what_it_covers() {
    const ROUNDS: u64 = 2000;
    let mut rig = Rig::new();
    if !rig.b.control.data_in_order() {
        return; // the words would have to be written one after the other
    }
    let remote = rig.region.remote(0, 64).unwrap();
    std::thread::scope(|scope| {
        let region = &rig.region;
        let watcher = scope.spawn(move || {
            let mut seen = 0;
            while seen < ROUNDS {
                let tail = region.observe_arrival(56).unwrap();
                assert!(tail >= seen, "a tail went back");
                let first = region.load_u64(0).unwrap();
                assert!(first >= tail, "the tail {tail} landed before the bytes {first}");
                seen = tail;
            }
        });
        for value in 1..=ROUNDS {
            let slot = rig.a.send.next_slot().unwrap();
            slot[..64].copy_from_slice(&value.to_ne_bytes().repeat(8));
            rig.a.send.stage(SendOp::Write { len: 64, remote }, true).unwrap();
            rig.a.send.post().unwrap();
            rig.a.sent();
        }
        watcher.join().unwrap();
    });
}

/// The device would read them from memory that the caller has freed by then.
#[test]
fn inline_bytes_that_were_not_posted_do_not_stay_staged() {
    let pd = context().alloc_pd().unwrap();
    // Not connected, so that soft0 takes no request.
    let mut end = end(&pd, PairConfig { max_inline: 64, ..PairConfig::default() }, ());
    let access = SharedRegionConfig { access: RemoteAccess::ALL, on_demand: false };
    let far = pd.register_shared(Mapping::new(4096).unwrap(), access).unwrap();
    let op = SendOp::Write { len: 16, remote: far.remote(0, 16).unwrap() };
    let posted = end.send.post_inline(&[7; 16], op, true);
    assert!(!matches!(posted, Err(PostInlineError::Stage(_))), "{posted:?}");
    // Also where a device has queued it and says that it failed.
    assert_eq!(end.send.staged(), 0);
}

/// The list of the parts is the caller's, too; afterwards the place uses its own list again.
#[test]
fn inline_parts_are_written_in_order_and_places_are_reused() {
    let pd = context().alloc_pd().unwrap();
    let shape = PairConfig { max_inline: 64, max_parts: 2, ..PairConfig::default() };
    let (mut a, _b) = pair_on(&pd, shape);
    let access = SharedRegionConfig { access: RemoteAccess::ALL, on_demand: false };
    let far = pd.register_shared(Mapping::new(4096).unwrap(), access).unwrap();
    let remote = |len| far.remote(8, len).unwrap();
    // More than there are places.
    for round in 0..40_u8 {
        let (first, second) = ([round; 8], [round + 100; 32]);
        let op = SendOp::Write { len: 40, remote: remote(40) };
        a.send.post_inline_parts([&first, &second], op, true).unwrap();
        a.sent();
        let mut there = [0; 48];
        far.copy_out(8, &mut there).unwrap();
        assert_eq!(
            (&there[..8], &there[8..40], &there[40..]),
            (&first[..], &second[..], &[0; 8][..])
        );
        // Of its slot, as ever.
        a.send.next_slot().unwrap()[..8].fill(round + 200);
        a.send.stage(SendOp::Write { len: 8, remote: remote(8) }, true).unwrap();
        a.send.post().unwrap();
        a.sent();
        assert_eq!(far.load_u64(8).unwrap(), u64::from_ne_bytes([round + 200; 8]));
    }
    let op = SendOp::Write { len: 80, remote: remote(80) };
    let too_long = a.send.post_inline_parts([&[1; 40], &[2; 40]], op, true);
    assert!(matches!(too_long, Err(PostInlineError::Stage(StageError::TooLong { len: 80, .. }))));
    let op = SendOp::Write { len: 5, remote: remote(5) };
    a.send.post_inline_parts([&[], &[7; 5]], op, true).unwrap();
    a.sent();
    let (mut plain, _far_end) = pair_on(&pd, PairConfig { max_parts: 1, ..shape });
    let refused = plain.send.post_inline_parts([&[1; 2], &[2; 3]], op, true);
    assert!(matches!(refused, Err(PostInlineError::Stage(StageError::NotOffered))));
    assert_eq!(plain.send.staged(), 0);
}
