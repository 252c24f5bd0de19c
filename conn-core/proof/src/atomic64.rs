//! The machines that need 64-bit atomics.

use conn_core::{
    combiner::Combiner,
    multicast::SendWindow,
    ring::{
        Committed, Consumer, ConsumerConfig, Geometry, Header, Producer, Taken,
        fetch::{Fetch, FetchConfig},
        free::{FreeFront, FreeList, RecordSlot},
    },
};

pub(crate) const STEPS: [super::DriveStep; 3] =
    [one_thread_at_a_time_is_inside, turns_are_taken, records_go_round_the_ring];

fn one_thread_at_a_time_is_inside() -> Option<bool> {
    static COMBINER: Combiner = Combiner::new();
    let entered = COMBINER.try_enter() && !COMBINER.try_enter();
    Some(entered && COMBINER.leave() && !COMBINER.leave())
}

fn turns_are_taken() -> Option<bool> {
    static WINDOW: SendWindow = SendWindow::new(3);
    let taken = WINDOW.try_take(2) && !WINDOW.try_take(2);
    WINDOW.raise(4);
    let more = WINDOW.try_take(2);
    WINDOW.close();
    Some(taken && more && WINDOW.closed_at() == Some(4))
}

/// Records of every length through a ring of 256 bytes that is read over a network, freed
/// every second one first.
fn records_go_round_the_ring() -> Option<bool> {
    let geometry = Geometry::plain(256, 120).ok()?;
    let (mut sender, mut memory) = (Producer::new(geometry), [0u8; 256]);
    let mut receiver = Consumer::new(geometry, ConsumerConfig { head_threshold: 64 });
    let mut fetch = Fetch::new(geometry, FetchConfig { max_read_bytes: 48, reads: 2 }).ok()?;
    let list = FreeList::new([const { RecordSlot::new() }; 4]).ok()?;
    let (mut front, mut held, mut received) = (FreeFront::new(), None, 0u32);
    for sent in 0..1000u32 {
        let len = sent % 41;
        let grant = sender.reserve(len).ok()?;
        memory.get_mut(grant.payload().range())?.fill(sent as u8);
        let Committed { header, skip } = sender.commit(grant, len).ok()?;
        for Header { offset, word } in [Some(header), skip].into_iter().flatten() {
            let at = offset as usize;
            memory.get_mut(at..at + 8)?.copy_from_slice(&word.to_le_bytes());
        }
        receiver.on_tail(sender.tail()).ok()?;
        while fetch.next(receiver.tail()).is_some() {
            receiver.on_landed(fetch.complete().ok()?).ok()?;
        }
        while let Some(at) = receiver.next_header() {
            let word = memory.get(at as usize..)?.first_chunk()?;
            let Taken::Record(record) = receiver.take(u64::from_le_bytes(*word)).ok()? else {
                continue;
            };
            let payload = memory.get(record.payload.range())?;
            if payload.len() as u32 != len || payload.iter().any(|&b| b != sent as u8) {
                return Some(false);
            }
            received += 1;
            let lent = front.lend(&list, record.end).ok()?;
            match held.take() {
                None => held = Some(lent),
                Some(earlier) => {
                    list.free(lent).ok()?;
                    list.free(earlier).ok()?;
                }
            }
        }
        receiver.on_freed(front.head(&list));
        if let Some(head) = receiver.head_due() {
            receiver.mark_told(head);
            sender.on_head(head).ok()?;
        }
    }
    Some(received == 1000)
}
