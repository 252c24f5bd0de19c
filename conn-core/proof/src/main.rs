//! Drives every machine of conn-core and roce-core, and the codec, in a program that has neither
//! std nor alloc, and exits with 0 if each did what it should. `run.sh` builds it, runs it, and
//! looks for an allocator in it.
//!
//! With `--cfg proof_of_failure` the last step expects something wrong: the exit status
//! must then not be 0.
#![no_std]
#![no_main]

use conn_core::{
    control::Control,
    credit::{CreditGrantor, CreditWindow},
    datagram::{FragmentReceiver, FragmentSender, SenderConfig},
    direct_read::{
        Ack, AckMode, Acknowledged, Notice, NoticeEffect, Offers, Place, ReadRequest, ReadSlot,
        Reads, ReadsConfig,
    },
    direct_write::{BufferReceiver, BufferSender, Detection, Layout},
    handshake::{
        DecodeError, Endpoint, Frame, MAX_FRAME, Mtu, Options, Parameters, ProtocolId, decode,
    },
    loan::{Borrower, Lender, LenderSlot, LoanGrantor},
    pack::{Packer, Unpacker},
    park_flag::ParkFlag,
    pool::{BufferPool, PoolConfig, PoolSlot},
    repost::{EnqueueError, RepostQueue, RepostWord, words_for},
    ring::{
        Geometry,
        offer::{self, HalfOffer, Offer, RingOffer, Tail},
    },
    storage::filled,
    wr::{SendTracker, SendTrackerConfig, WrClass},
};

#[cfg(all(target_has_atomic = "64", not(rdma_conn_no_atomic64)))]
mod atomic64;

/// The machines that need 64-bit atomics, where there are none.
#[cfg(not(all(target_has_atomic = "64", not(rdma_conn_no_atomic64))))]
mod atomic64 {
    pub(crate) const STEPS: [super::DriveStep; 0] = [];
}

mod groups;
mod queue_pairs;
mod rings;
mod wire;

/// Drives some machines. `None` or `false` is failure.
type DriveStep = fn() -> Option<bool>;

#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    loop {
        // Without unsafe code there is no way out from here: `run.sh` sets a time limit.
        core::hint::spin_loop();
    }
}

/// The number of the step that failed, or 0.
// SAFETY: the C runtime calls `main` with this signature, and nothing else defines it.
#[unsafe(no_mangle)]
pub extern "C" fn main(_arguments: i32, _values: *const *const u8) -> i32 {
    let steps: [DriveStep; _] = [
        rings::a_ring_is_read,
        messages_flow,
        buffers_are_lent,
        packed_messages_come_out,
        a_message_is_cut_and_put_together,
        frees_are_reposted,
        storage_is_bounded,
        who_sleeps_is_woken,
        groups::counters_share_a_push,
        groups::a_group_of_two_delivers,
        rings::records_are_pushed,
        buffers_are_written_and_given_back,
        rings::extents_are_taken_filled_and_given_back,
        memory_is_read_and_given_back,
        the_handshake_goes_there_and_back,
        wire::a_packet_goes_over_the_wire,
        queue_pairs::requests_complete_in_spite_of_a_loss,
        queue_pairs::unreliable_messages_are_received,
        lies_are_refused,
    ];
    for (step, number) in steps.into_iter().chain(atomic64::STEPS).zip(1..) {
        if step() != Some(!cfg!(proof_of_failure)) {
            return number;
        }
    }
    0
}

const WINDOW: u32 = 8;

/// The drive loop of the crate's docs, with an array as the wire.
fn messages_flow() -> Option<bool> {
    let config = SendTrackerConfig { depth: 8, control_slots: 2, signal_every: 3 };
    let (mut tracker, mut control) =
        (SendTracker::new(config).ok()?, SendTracker::new(config).ok()?);
    let mut window = CreditWindow::new(WINDOW).ok()?;
    let mut pool =
        BufferPool::new([PoolSlot::new(); WINDOW as usize], PoolConfig { repost_batch: 3 }).ok()?;
    let mut grantor = CreditGrantor::new(WINDOW, 3).ok()?;
    let mut ids = [0; WINDOW as usize];
    let mut posted = pool.take_repost(&mut ids) as u64;
    for message in 0..1000 {
        window.consume(1).ok()?;
        let planned = tracker.plan(WrClass::Data).ok()?;
        if planned.signalled {
            tracker.complete(planned.id).ok()?;
        }
        let id = ids[message % ids.len()];
        grantor.on_receive().ok()?;
        pool.lend(id).ok()?;
        pool.free(id).ok()?;
        while pool.due() {
            let at = (posted % u64::from(WINDOW)) as usize;
            let count = pool.take_repost(&mut ids[at..]);
            posted += count as u64;
            grantor.on_reposted(count as u32).ok()?;
        }
        if let Some(credit) = grantor.due() {
            let planned = control.plan_signalled(WrClass::Control).ok()?;
            control.complete(planned.id).ok()?;
            grantor.mark_granted(credit).ok()?;
            let Ok(Control::Credit(wire)) = Control::decode(Control::Credit(credit).encode())
            else {
                return None;
            };
            window.on_credit(wire).ok()?;
        }
    }
    Some(window.sent() == 1000 && grantor.received() == 1000 && tracker.next_id().0 == 1001)
}

/// Two senders in turn out of a pool that has loans for both.
fn buffers_are_lent() -> Option<bool> {
    let mut lender = Lender::new([LenderSlot::new(); 2], 40).ok()?;
    let (mut member, mut sent) = (lender.join(8).ok()?, 0);
    let mut other = lender.join(8).ok()?;
    let (mut ends, mut grantors) =
        ([Borrower::new(8).ok()?, Borrower::new(8).ok()?], [const { LoanGrantor::new() }; 2]);
    while sent < 1000 {
        let (borrower, window) = ends.get_mut(member as usize)?;
        let grantor = grantors.get_mut(member as usize)?;
        while window.consume(1).is_ok() {
            grantor.on_receive_many(1).ok()?;
            lender.home(member, 1).ok()?;
            sent += 1;
        }
        if !borrower.wants(window) {
            return Some(false);
        }
        borrower.mark_asked();
        grantor.on_want().ok()?;
        lender.want(member).ok()?;
        while lender.next_due().is_some() {}
        grantor.lend(lender.take(member).ok()?);
        let answer = grantor.due()?;
        grantor.mark_sent(answer);
        let Ok(Control::Loan(wire)) = Control::decode(answer.encode()) else { return None };
        borrower.on_loan(window, wire).ok()?;
        // All but one of the credits go back now and then.
        if let Some(wire) = borrower.returnable(window).filter(|_| sent % 3 == 0) {
            borrower.mark_returned(window);
            lender.give_back(member, grantor.on_return(wire).ok()?).ok()?;
        }
        core::mem::swap(&mut member, &mut other);
    }
    lender.tick();
    let unused = grantors.each_ref().map(LoanGrantor::unused);
    lender.leave(0, unused[0]).ok()?;
    lender.leave(1, unused[1]).ok()?;
    Some(lender.free() == lender.lendable())
}

/// The network loses every third datagram.
fn a_message_is_cut_and_put_together() -> Option<bool> {
    const BYTES: usize = 32;
    let config = SenderConfig { window: 4, ..SenderConfig::default() };
    let mut sender = FragmentSender::new(config, BYTES, [0; 4 * BYTES]).ok()?;
    let mut receiver = FragmentReceiver::new(4, BYTES, 100, [0; 4 * BYTES]).ok()?;
    let (message, mut datagram) = ([7; 100], [0; BYTES]);
    let (mut offset, mut received, mut now_ns, mut sent) = (0, 0, 0, 0);
    while received < message.len() {
        while offset < message.len() {
            let Some(next) = sender.cut(&message, offset) else { break };
            offset = next;
        }
        while let Some(len) = sender.transmit(now_ns, &mut datagram) {
            sent += 1;
            if sent % 3 == 0 {
                continue;
            }
            let fragment = receiver.arrive(datagram.get(..len)?).ok()?;
            received += fragment.map_or(0, |fragment| fragment.bytes.len());
            while let Some(fragment) = receiver.take().ok()? {
                received += fragment.bytes.len();
            }
        }
        sender.on_ack(&receiver.ack(), now_ns).ok()?;
        now_ns = sender.wants_ns().unwrap_or(now_ns);
    }
    sender.check_peer(now_ns).ok()?;
    Some(sender.is_idle() && received == message.len() && sender.repeated() > 0)
}

fn packed_messages_come_out() -> Option<bool> {
    let (mut buf, mut packer) = ([0; 64], Packer::new(64));
    for len in 0..9 {
        packer.push(&mut buf, &[len; 9][..len.into()]).ok()?;
        if packer.fits(20) {
            continue;
        }
        let (mut unpacker, mut found) = (Unpacker::new(packer.len()), 0);
        while let Some(span) = unpacker.next(&buf).ok()? {
            found +=
                u32::from(buf[span.range()].iter().all(|&b| usize::from(b) == span.range().len()));
        }
        if found != packer.count() {
            return Some(false);
        }
        packer.reset();
    }
    Some(true)
}

fn frees_are_reposted() -> Option<bool> {
    let queue = RepostQueue::new([const { RepostWord::new() }; words_for(100)], 100).ok()?;
    let mut sum = 0;
    for id in 0..100 {
        queue.enqueue(id).ok()?;
        let mut out = [0; 8];
        let count = queue.drain(&mut out);
        sum += out[..count].iter().sum::<u32>();
    }
    Some(sum == 4950 && queue.is_empty())
}

/// A pool of as many buffers as a number says, in storage that has room for 8.
fn storage_is_bounded() -> Option<bool> {
    let pool = |buffers| {
        let slots = filled::<PoolSlot, 8>(buffers).ok()?;
        BufferPool::new(slots, PoolConfig { repost_batch: 1 }).ok()
    };
    let (mut five, mut ids) = (pool(5)?, [0; 8]);
    let taken = five.take_repost(&mut ids);
    five.lend(4).ok()?;
    five.free(4).ok()?;
    Some(taken == 5 && five.due() && pool(8).is_some() && pool(9).is_none())
}

/// Each message goes into a buffer, and each slot names the next one.
fn buffers_are_written_and_given_back() -> Option<bool> {
    let layout = Layout::new(4, 100).ok()?;
    let mut sender = BufferSender::new(layout, 6)?;
    let mut receiver = BufferReceiver::new(layout, 6, Detection::Trailer, [0; 4])?;
    let (mut slots, mut trailers) = ([[0; 2]; 6], [[0; 2]; 4]);
    for message in 0..100 {
        let buffer = sender.buffer(|at| Some(slots[at as usize / 24])).ok()??;
        trailers[buffer as usize] = [sender.mark_sent(), message];
        let arrival = receiver.on_trailer(Some(trailers[receiver.expected()? as usize])).ok()??;
        if arrival.buffer != buffer || u64::from(arrival.len) != message {
            return Some(false);
        }
        receiver.free(arrival.buffer);
        while let Some(run) = receiver.slots_due(2) {
            for nth in 0..u64::from(run.count) {
                slots[run.offset as usize / 24 + nth as usize] =
                    receiver.slot_words(run.number + nth);
            }
            receiver.mark_told(run);
        }
    }
    Some(receiver.received() == 100)
}

/// Messages of every length that are read in parts, every seventh of them refused.
fn memory_is_read_and_given_back() -> Option<bool> {
    use conn_core::direct_read::Refusal::NotWanted;
    let config = ReadsConfig { window: 8, ack: AckMode::Send, reads: 2, max_read: 16, gather: 4 };
    let mut offers = Offers::new(WINDOW).ok()?;
    let mut reads = Reads::new(config, [ReadSlot::default(); WINDOW as usize]).ok()?;
    let (mut buf, mut parts, mut read) = ([0; 64], 0, 0);
    for sent in 0..1000u64 {
        let number = offers.offer().ok()? as u32;
        let (len, memory) = (sent % 40 + 1, Place { addr: sent + 1, rkey: 7 });
        let request = ReadRequest { number, len, memory, signal: None, app: b"proof" };
        let bytes = request.encode(&mut buf).ok()?;
        let request = ReadRequest::decode(&buf[..bytes]).ok()?;
        reads.on_request(request.number).ok()?;
        match sent % 7 {
            0 => reads.refuse(NotWanted).ok()?,
            _ => reads.read(request.len).ok()?,
        };
        while let Some(part) = reads.next_read() {
            parts += part.len;
            reads.on_read_done().ok()?;
        }
        while let Some(ack) = reads.next_ack() {
            reads.mark_acked(ack);
            let Ack::Notice(notice) = ack else { return None };
            let notice = Notice::decode(notice.encode()).ok()?;
            let Ok(NoticeEffect::Acknowledged(Acknowledged { read: n, .. })) =
                offers.on_notice(notice)
            else {
                return None;
            };
            read += n;
        }
    }
    Some(offers.acked() == 1000 && read == 857 && parts == 17_566)
}

fn who_sleeps_is_woken() -> Option<bool> {
    static PARK_FLAG: ParkFlag = ParkFlag::new();
    PARK_FLAG.announce();
    Some(PARK_FLAG.should_wake() && !PARK_FLAG.should_wake() && !PARK_FLAG.retract())
}

fn the_handshake_goes_there_and_back() -> Option<bool> {
    let end = Endpoint { qp_num: 17, psn: 0x00ff_ffff, recv_depth: WINDOW, max_message: 4096 };
    let (geometry, place) =
        (Geometry::mirrored(4096, 512).ok()?, offer::Place { addr: 4096, rkey: 1 });
    let ring = RingOffer { place, geometry, tail: Tail::Read };
    let half = HalfOffer { control: Some(place), ring: Some(ring) };
    let offer = Offer { initiator_to_acceptor: Some(half), acceptor_to_initiator: None, user: b"" };
    let mut application = [0; 64];
    let offered = offer.encode(&mut application).ok()?;
    let parameters = Parameters {
        protocol: ProtocolId::BUFFERED_READ,
        options: Options::PACKED,
        initiator_to_acceptor: Some(end),
        acceptor_to_initiator: None,
        lid: 0,
        gid: [7; 16],
        mtu: Mtu::B1024,
        application: application.get(..offered)?,
    };
    let decoded = Offer::decode(parameters.application).ok()?;
    let fits = decoded == offer && decoded.fits(&parameters, true).is_ok();
    let hello = Frame::Hello(parameters);
    let mut buf = [0; MAX_FRAME];
    let len = hello.encode(&mut buf).ok()?;
    let part = decode(&buf[..len - 1]) == Err(DecodeError::Incomplete { need: len });
    Some(fits && part && decode(&buf).ok()?.frame == hello)
}

fn lies_are_refused() -> Option<bool> {
    let mut window = CreditWindow::new(WINDOW).ok()?;
    let credit = conn_core::credit::CreditWire::new(WINDOW + 1)?;
    let queue = RepostQueue::new([const { RepostWord::new() }; words_for(1)], 1).ok()?;
    queue.enqueue(0).ok()?;
    Some(
        window.on_credit(credit).is_err()
            && queue.enqueue(0) == Err(EnqueueError::AlreadyQueued)
            && Control::decode(1 << 31).is_err()
            && decode(b"junk").is_err()
            && Unpacker::new(4).next(&[1, 0, 0, 0]).is_err(),
    )
}
