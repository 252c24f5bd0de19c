//! A multicast group, and counters that share its pushes.

use conn_core::{
    multicast::{Config, Member, Members, Policy, ROW_WORDS, Rank, Record, Write, header},
    push_inhibitor::{PushCause, PushCounter, PushInhibitor, PushRule},
};

/// Two counters, of which one moves by jumps; every tenth message is flushed.
pub(crate) fn counters_share_a_push() -> Option<bool> {
    let rule = PushRule { every: core::num::NonZeroU32::new(7)?, deadline_ns: 4 };
    let mut inhibitor = PushInhibitor::new(rule, [PushCounter::new(); 2]);
    let (mut shown, mut causes) = ([0; 2], [0u32; 3]);
    for now in 1..=1000 {
        inhibitor.advance(0, now / 3);
        inhibitor.advance(1, now / 20 * 5);
        if now % 10 == 0 {
            inhibitor.urge();
        }
        let Some(cause) = inhibitor.due(now) else { continue };
        let cause = match cause {
            PushCause::Urged => causes.first_mut(),
            PushCause::Crossed => causes.get_mut(1),
            PushCause::Forced => causes.last_mut(),
        };
        *cause? += 1;
        shown.iter_mut().zip(inhibitor.counts()).for_each(|(word, count)| *word = count);
        inhibitor.mark_pushed();
    }
    let all = causes.iter().all(|&pushes| pushes > 0) && causes.iter().sum::<u32>() < 300;
    Some(all && shown == [333, 250] && !inhibitor.is_pending())
}

const RING: usize = Config::capacity_for(8, 8) as usize;

/// Memory that two members see: the sender's ring, its copy at the other member, the private copies
/// of both, and their rows.
struct Fabric {
    ring: [u64; RING / 8],
    there: [u64; RING / 8],
    private: [[u64; RING / 8]; 2],
    rows: [[u64; ROW_WORDS]; 2],
    delivered: [u64; 2],
}

impl Fabric {
    /// One pass of the member `me`.
    fn pass(&mut self, member: &mut Member, me: usize, now: u64, tail: u64) -> Option<()> {
        let theirs = self.rows.get(1 - me)?;
        let load = |at| *theirs.get(usize::from(at)).unwrap_or(&0);
        member.on_row(Rank(1 - me as u8), now, load);
        member.on_tail(tail, now);
        while let Some(copy) = member.next_copy() {
            let words = copy.span.range().start / 8..copy.span.range().end / 8;
            let from = if me == 0 { &self.ring } else { &self.there };
            self.private.get_mut(me)?.get_mut(words.clone())?.copy_from_slice(from.get(words)?);
        }
        let private = *self.private.get(me)?;
        let word = |_, at: u64| *private.get(at as usize / 8).unwrap_or(&0);
        while let Some(push) = member.next_push(now, word) {
            self.write(member, me, push.write)?;
        }
        while let Some(delivery) = member.next_delivery(word) {
            let at = (delivery.span.offset as usize / 8) % (RING / 8);
            let delivered = self.delivered.get_mut(me)?;
            if private.get(at) != Some(delivered) {
                return None;
            }
            *delivered += 1;
        }
        Some(())
    }

    fn write(&mut self, member: &Member, me: usize, write: Write) -> Option<()> {
        match write {
            Write::Slots(span) => {
                let words = span.range().start / 8..span.range().end / 8;
                self.there.get_mut(words.clone())?.copy_from_slice(self.ring.get(words)?);
            }
            Write::Row(words) => {
                let mut out = [0; ROW_WORDS];
                let count = member.row_words(words, &mut out);
                let to = self.rows.get_mut(me)?.get_mut(usize::from(words.first)..)?;
                to.get_mut(..count)?.copy_from_slice(out.get(..count)?);
            }
            Write::Repair(_) => return None,
        }
        Some(())
    }
}

/// One member sends to the other; both are driven in turns.
pub(crate) fn a_group_of_two_delivers() -> Option<bool> {
    let config = Config {
        members: 2,
        rank: Rank(0),
        senders: Members::first(1),
        window: 8,
        max_message: 8,
        capacity: RING as u64,
        is_mirrored: false,
        policy: Policy::Every(3),
        deadline_ns: 100,
        health_ns: 1_000_000,
        suspect_ns: 1 << 40,
    };
    let mut members =
        [Member::new(config, 0).ok()?, Member::new(Config { rank: Rank(1), ..config }, 0).ok()?];
    let mut fabric = Fabric {
        ring: [0; RING / 8],
        there: [0; RING / 8],
        private: [[0; RING / 8]; 2],
        rows: [[0; ROW_WORDS]; 2],
        delivered: [0; 2],
    };
    let (mut tail, mut sent) = (0, 0u64);
    for now in 0..4000 {
        let limit = members.first()?.freed().1 + u64::from(config.window);
        if sent < limit.min(500) {
            let at = (tail % RING as u64 / 8) as usize;
            *fabric.ring.get_mut(at)? = header(Record::Message(8), tail);
            *fabric.ring.get_mut((at + 1) % (RING / 8))? = sent;
            (tail, sent) = (tail + 16, sent + 1);
        }
        for (me, member) in members.iter_mut().enumerate() {
            fabric.pass(member, me, now, tail)?;
        }
    }
    Some(fabric.delivered == [500; 2])
}
