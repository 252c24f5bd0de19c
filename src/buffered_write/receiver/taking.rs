//! Taking messages of a link: from a copy, into a copy, or in place.

use conn_core::ring::{Record, RecordError, Span};

use crate::buffered_write::link::BufferedWriteLink;
use crate::copies::{CopyPool, worth_copying};
use crate::places::LinkPlace;

/// The copied messages of one link that are being handed out.
#[derive(Debug, Clone, Copy)]
pub(super) struct Open {
    pub(super) place: u32,
    /// The positions that the copy begins at and ends at.
    pub(super) from: u64,
    pub(super) until: u64,
}

/// A message that was taken in place, in the ring.
#[derive(Debug, Clone, Copy)]
pub(super) struct InRing {
    pub(super) open: Open,
    pub(super) payload: Span,
}

/// Takes the next message of a link's copy; `None` at the end of the copy, or if no whole message
/// follows, which is then checked in the ring.
#[inline]
pub(super) fn take_from(link: &mut BufferedWriteLink, bytes: &[u8], open: Open) -> Option<Record> {
    let position = link.core.read_pointer();
    let at = (position - open.from) as usize;
    let word = bytes.get(at..).and_then(|rest| rest.first_chunk());
    let word = u64::from_le_bytes(*word.filter(|_| position < open.until)?);
    let record = link.core.message_bytes(word);
    if record.is_some_and(|record| position + record <= open.until) {
        // Messages that fit the copy lie before the tail. An inline record may cross the end of
        // memory, where no correct sender writes one: then `take` fails.
        return link.core.take(word).unwrap_or_else(|e| {
            link.fail_record(e);
            None
        });
    }
    if at == 0 {
        // The header was that of a whole message before: the peer has overwritten it.
        link.fail_record(RecordError::Mark { position });
    }
    None
}

/// Copies messages of a link, up to [`worth_copying`]. Records that are no messages are skipped.
pub(super) fn copy(
    place: &mut LinkPlace<BufferedWriteLink>,
    chunks: &mut CopyPool,
    at: u32,
) -> Option<Open> {
    let link = &mut place.link;
    while link.has_more()
        && let Some(offset) = link.core.next_header()
    {
        let from = link.core.read_pointer();
        if let Some(record) = link.inline_record() {
            let bytes = record.bytes();
            let to = chunks.open().get_mut(..bytes as usize)?.as_chunks_mut::<8>().0;
            to.iter_mut().zip(record.words()).for_each(|(to, word)| *to = word.to_le_bytes());
            return Some(Open { place: at, from, until: from + bytes });
        }
        // A header lies in the ring, and its memory is at least as long.
        let word = u64::from_le(link.ring.load_u64(offset as usize).unwrap_or_default());
        let available = (link.core.contiguous() - from).min(chunks.bytes());
        let record = link.core.message_bytes(word).filter(|bytes| *bytes <= available);
        if let Some(record) = record {
            let bytes = worth_copying(record, available);
            let to = chunks.open().get_mut(..bytes as usize);
            let copied = to.map(|to| link.ring.copy_out(offset as usize, to));
            debug_assert!(matches!(copied, Some(Ok(()))), "a piece of the ring fits a copy");
            return Some(Open { place: at, from, until: from + bytes });
        }
        match link.core.take(word) {
            Ok(None) => {}
            // A whole record that does not fit the copy is impossible.
            Ok(Some(record)) => {
                link.fail_record(RecordError::BeyondTail { by: record.end - from - available });
            }
            Err(e) => link.fail_record(e),
        }
    }
    // Skipped bytes are the sender's again.
    link.core.on_freed(link.core.read_pointer());
    None
}

/// Takes the next message of a link in place. Records that are no messages are skipped.
pub(super) fn take_in_place(place: &mut LinkPlace<BufferedWriteLink>, at: u32) -> Option<InRing> {
    let link = &mut place.link;
    while link.has_more()
        && let Some(offset) = link.core.next_header()
    {
        link.settle_inline();
        // As in `copy`.
        let word = u64::from_le(link.ring.load_u64(offset as usize).unwrap_or_default());
        let from = link.core.read_pointer();
        match link.core.take(word) {
            Ok(Some(Record { payload, end, .. })) => {
                place.messages += 1;
                return Some(InRing { open: Open { place: at, from, until: end }, payload });
            }
            Ok(None) => {}
            Err(e) => link.fail_record(e),
        }
    }
    link.core.on_freed(link.core.read_pointer());
    None
}
