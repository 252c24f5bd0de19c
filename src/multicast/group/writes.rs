//! Writes to the peers: stages and posts due writes, and takes their completions.

use conn_core::multicast::{Push, ROW_WORDS, Rank, RepairHeader, Status, Write};

use super::super::memory::repair_area;
use super::super::peer::GroupPeer;
use super::Group;

impl Group {
    pub(super) fn push(&mut self, now_ns: u64) {
        while self.have_room() {
            let Group { machine, private, .. } = self;
            let next = machine.next_push(now_ns, |of, at| private[of.index()].word(at));
            let Some(push) = next else { break };
            self.stage(push);
        }
        self.post();
        self.give_up_broken();
        self.slots.on_pushed(self.machine.pushed_turns());
    }

    /// Reports whether each peer can be written to once more; posts and reaps, if that helps.
    #[inline]
    fn have_room(&mut self) -> bool {
        if self.all_have_room() {
            return true;
        }
        self.post();
        self.reap();
        self.all_have_room()
    }

    #[inline]
    fn post(&mut self) {
        for peer in self.peers.iter_mut().flatten() {
            if !peer.post() {
                peer.give_up();
            }
        }
    }

    /// Does not wait for a member that is cut off: its device may retry for long.
    #[inline]
    pub(super) fn all_have_room(&self) -> bool {
        let has_room =
            |rank: Rank| self.peers[rank.index()].as_ref().is_none_or(GroupPeer::has_room);
        self.machine.reachable().iter().all(has_room)
    }

    fn stage(&mut self, push: Push) {
        let mut words = [0; ROW_WORDS];
        let mut count = 0;
        let (mut first, mut area) = (0, 0);
        match push.write {
            Write::Row(row) => {
                first = row.first;
                count = self.machine.row_words(row, &mut words);
            }
            Write::Repair(repair) => area = self.fill_repair(repair),
            Write::Slots(_) => {}
        }
        let last = matches!(self.machine.status(), Status::Finished | Status::Left);
        for to in push.to.iter() {
            let Some(peer) = &mut self.peers[to.index()] else { continue };
            let staged = match push.write {
                Write::Slots(span) => peer.write_slots(span.offset as usize, span.len as u32),
                Write::Row(_) => peer.write_row(first, &words[..count], last),
                Write::Repair(repair) => {
                    peer.write_repair(area, (RepairHeader::BYTES as u64 + repair.len) as u32)
                }
            };
            if staged.is_err() {
                peer.give_up();
            }
        }
    }

    /// Stores the repair until it has been written; returns its offset. With more suspects the next
    /// repair may follow before this one has been fetched, and devices fetch late, or again: so
    /// each number of suspects has a place of its own.
    pub(super) fn fill_repair(&mut self, repair: RepairHeader) -> usize {
        let at = repair_area(self.machine.config()) * (repair.suspected.len() as usize - 1);
        let mut bytes: Vec<u8> =
            repair.words().iter().flat_map(|word| word.to_le_bytes()).collect();
        let ring = &self.private[repair.of.index()];
        ring.ring(repair.position, repair.len as usize).iter().for_each(|part| bytes.extend(*part));
        self.repair.copy_in(at, &bytes).expect("a repair fits its area");
        at
    }

    /// Takes completions in.
    pub(super) fn reap(&mut self) {
        let Ok(1..) = self.cq.poll(&mut self.batch) else { return };
        for completion in self.batch.drain() {
            let id = completion.queue_id();
            let mut peers = self.peers.iter_mut().flatten();
            if let Some(peer) = peers.find(|peer| peer.queue_id() == id)
                && !peer.retire(&completion)
            {
                peer.give_up();
            }
        }
        self.give_up_broken();
    }

    fn give_up_broken(&mut self) {
        for (rank, peer) in (0..).map(Rank).zip(&self.peers) {
            if peer.as_ref().is_some_and(GroupPeer::is_broken) {
                self.machine.unreachable(rank);
            }
        }
    }
}
