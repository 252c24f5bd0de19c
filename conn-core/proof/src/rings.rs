//! Rings: one that its receiver reads, one that its sender writes, and one that senders share.

use conn_core::{
    buffered_read::{Reader, ReaderConfig, ReaderRequest, Source, Words},
    buffered_write::{WriteReceiver, WriteSender},
    ring::{Committed, Geometry, Taken, fetch::FetchConfig},
    shared_write::{
        self, Claim, ExtentReceiver, ExtentSender, ExtentSlot, LinkSlot, LinkWords, LookOutcome,
    },
};

/// Both ends of Buffered Read until the sender knows that all was read.
pub(crate) fn a_ring_is_read() -> Option<bool> {
    let geometry = Geometry::mirrored(256, 100).ok()?;
    let fetch = FetchConfig { max_read_bytes: 64, reads: 2 };
    let (prefetch, head_update_polls, gather) = (true, 4, 0);
    let config = ReaderConfig { head_threshold: 64, fetch, prefetch, head_update_polls, gather };
    let (mut source, mut reader) = (Source::new(geometry), Reader::new(geometry, config).ok()?);
    let (mut word, mut sent, mut taken) = (0, 0u32, 0u32);
    while !source.is_seen() {
        match source.reserve(16) {
            Ok(grant) if sent < 500 => {
                word = source.commit(grant, 16).ok()?.header.word;
                sent += 1;
            }
            _ if sent == 500 => source.finish(),
            _ => {}
        }
        reader.look_again();
        while let Some(request) = reader.next_request() {
            reader.on_completion(|| Some(source.tail_word())).ok()?;
            if let ReaderRequest::Words(Words { head, landed }) = request {
                source.on_words(Words { head, landed }).ok()?;
            }
        }
        // Each record is taken before the next one is sent, so that its header is the last.
        if reader.next_header().is_some() && matches!(reader.take(word), Ok(Taken::Record(_))) {
            taken += 1;
            reader.on_freed(reader.ring().read_pointer());
        }
    }
    Some(taken == 500 && source.has_landed(source.ring().tail()))
}

/// A Buffered Write connection whose two ends share a memory: a push is no copy.
pub(crate) fn records_are_pushed() -> Option<bool> {
    let (geometry, mut memory) = (Geometry::mirrored(256, 120).ok()?, [0u8; 256]);
    let mut sender = WriteSender::new(geometry, Some(2));
    let mut receiver = WriteReceiver::new(geometry, 64, Some(2));
    let mut received = 0;
    for sent in 0..1000u32 {
        let grant = sender.reserve(sent % 41).ok()?;
        let Committed { header, .. } = sender.commit(grant, sent % 41).ok()?;
        let at = header.offset as usize;
        memory.get_mut(at..at + 8)?.copy_from_slice(&header.word.to_le_bytes());
        if sent % 2 == 0 {
            continue;
        }
        let push = sender.push()?;
        sender.mark_pushed(&push);
        receiver.on_immediate(push.tail.to_imm()).ok()?;
        while let Some(at) = receiver.next_header() {
            let word = memory.get(at as usize..)?.first_chunk()?;
            received += u32::from(receiver.take(u64::from_le_bytes(*word)).ok()?.is_some());
        }
        receiver.on_freed(receiver.read_pointer());
        let update = receiver.update_due()?;
        receiver.mark_told(update);
        sender.on_update(update.head.to_word(), update.taken).ok()?;
    }
    Some(received == 1000)
}

/// Messages in extents of a shared ring, whose one sender takes ticket after ticket.
pub(crate) fn extents_are_taken_filled_and_given_back() -> Option<bool> {
    let layout = shared_write::Layout::new(3, 512, 100, 1).ok()?;
    let mut sender = ExtentSender::new(layout);
    let slots = ([ExtentSlot::default(); 3], [LinkSlot::default(); 1]);
    let mut receiver = ExtentReceiver::new(layout, slots.0, slots.1)?;
    let (mut entries, mut words, mut tail) = ([0; 6], LinkWords::default(), 1);
    receiver.open(0);
    let mut entry_of = |receiver: &mut ExtentReceiver<_, _>, ticket: u64| {
        while let Some(grant) = receiver.grant() {
            let nth = (grant.entry_at - layout.entry_at(0)) / shared_write::ENTRY_BYTES;
            *entries.get_mut(nth as usize)? = grant.word;
        }
        entries.get(ticket as usize % entries.len()).copied()
    };
    for message in 0..100 {
        if let Some(Claim { words: claim, place }) = sender.claim_due() {
            let at =
                if place == shared_write::FIRST_AT { &mut words.first } else { &mut words.ahead };
            *at = tail;
            (words.reported, words.announced) = (Some(claim), Some(claim));
            sender.on_claimed(tail).ok()?;
            tail += 1;
        }
        if let Some(ticket) = sender.looks_for() {
            let entry = entry_of(&mut receiver, ticket);
            sender.on_entry(Some(receiver.decided()), entry).ok()?;
        }
        let spot = sender.spot(message)?;
        sender.mark_sent(&spot);
        receiver.on_link(0, words).ok()?;
        if let Some((at, end)) = spot.end {
            if receiver.trailer_at(0).ok()? != Some(at) {
                return Some(false);
            }
            let LookOutcome::End(emptied) = receiver.on_trailer(0, Some(end)).ok()? else {
                return None;
            };
            receiver.recycle(emptied);
        }
        if receiver.trailer_at(0).ok()? != Some(spot.trailer_at) {
            return Some(false);
        }
        let found = receiver.on_trailer(0, Some(spot.trailer)).ok()?;
        if found != (LookOutcome::Message { offset: spot.payload_at, len: message }) {
            return Some(false);
        }
    }
    Some(receiver.received(0) == 100)
}
