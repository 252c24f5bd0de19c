//! A whole group on a simulated fabric, the operations on it, and its invariants.
//!
//! Writes from one member to another arrive in order, as a reliable connection has it; those of
//! different pairs in any order. A write that has begun to arrive is torn: any subset of its bytes
//! may be there already. Writes of a crashed member may never arrive, or stay torn.

use std::collections::VecDeque;
use std::{vec, vec::Vec};

use arbitrary::Arbitrary;

use super::*;
use crate::exhaustive::CheckedMachine;

/// An operation on a group. Members are taken modulo their number.
#[derive(Arbitrary, Clone, Copy, Debug)]
pub enum GroupOp {
    /// A member sends a message of the given length (modulo a slot's capacity), if it may.
    Send(u8, u8),
    /// A member reserves room and does not use it.
    Waste(u8, u8),
    /// A member flushes.
    Flush(u8),
    /// A member ends its stream.
    End(u8),
    /// A member makes a pass, this many microseconds after the last.
    Poll(u8, u8),
    /// This number of writes of the first member to the second one arrive.
    Land(u8, u8, u8),
    /// The next write of the first member to the second begins to arrive: of its bytes, a
    /// choice.
    Begin(u8, u8, u8),
    /// A member crashes; up to this number of its posted writes to each member arrive.
    Crash(u8, u8),
    /// The first member finds the second unreachable, if it has crashed.
    Notice(u8, u8),
    /// A member is unreachable to the first one, though it lives.
    Accuse(u8),
    /// A member leaves.
    Leave(u8),
    /// A member shows that it lives, and from now on withholds something that the others
    /// need to agree on the end.
    Withhold(u8, Withheld),
}

/// Something that a living member withholds from all others, or claims, so that they wait for it.
#[derive(Arbitrary, Clone, Copy, Debug, PartialEq, Eq)]
pub enum Withheld {
    /// It never shows that its counters are final.
    Wedged,
    /// It never shows its suspects, and so never the same as the others.
    Suspected,
    /// It claims this number of turns of each suspect in addition to those that it has.
    Turns(u8),
    /// It counts its repairs, and they are empty.
    Repairs,
    /// It acknowledges nothing more.
    Received,
    /// It claims to have finished, regardless of what it has received.
    Finished,
}

/// A write on its way: to which memory, the offset there, the bytes.
#[derive(Clone, Debug)]
struct MemberWrite {
    memory: WrittenMemory,
    offset: usize,
    bytes: Vec<u8>,
}

#[derive(Clone, Copy, Debug)]
enum WrittenMemory {
    Slots,
    Row,
    Area,
}

#[derive(Clone, Debug)]
struct GroupNode {
    machine: Member,
    /// The own ring, and the peers' where they write them.
    rings: Vec<Vec<u8>>,
    rows: Vec<Vec<u8>>,
    areas: Vec<Vec<u8>>,
    private: Vec<Vec<u8>>,
    tail: u64,
    begun: u64,
    has_ended: bool,
    sent: Vec<Vec<u8>>,
    /// Number of messages from each sender that were delivered here.
    from: Vec<usize>,
    delivered: usize,
    has_crashed: bool,
    /// Item that it withholds, and the row that it had shown before.
    lie: Option<(Withheld, Row)>,
}

/// A group, its fabric, and the sequence that its members deliver.
#[derive(Clone, Debug)]
pub struct CheckedGroup {
    nodes: Vec<GroupNode>,
    links: Vec<Vec<VecDeque<MemberWrite>>>,
    order: Vec<(Rank, usize)>,
    now_ns: u64,
    was_accused: bool,
    has_failed: bool,
    /// Writes of all members.
    pub writes: u64,
}

fn word(bytes: &[u8], at: u64) -> u64 {
    let mut word = [0; 8];
    word.copy_from_slice(&bytes[at as usize..at as usize + 8]);
    u64::from_le_bytes(word)
}

/// Reports whether a write's byte at `at` is there: `choice` selects the bytes before or behind
/// some place, or any.
fn chosen(choice: u8, at: usize, len: usize) -> bool {
    let place = len * usize::from(choice / 4) / 64;
    match choice % 4 {
        0 => at < place,
        1 => at >= place,
        _ => (at as u64 + 1).wrapping_mul(u64::from(choice) << 32 | 0x9e37_79b9) >> 13 & 1 == 1,
    }
}

impl GroupNode {
    /// Bytes of a write arrive, those that are chosen.
    fn receive(&mut self, from: usize, landing: &MemberWrite, chosen: impl Fn(usize) -> bool) {
        let memory = match landing.memory {
            WrittenMemory::Slots => &mut self.rings[from],
            WrittenMemory::Row => &mut self.rows[from],
            WrittenMemory::Area => &mut self.areas[from],
        };
        let len = memory.len(); // behind a ring's end lies its beginning
        for (at, byte) in landing.bytes.iter().enumerate().filter(|(at, _)| chosen(*at)) {
            memory[(landing.offset + at) % len] = *byte;
        }
    }

    fn new(config: Config) -> Self {
        let (n, ring) = (usize::from(config.members), config.capacity as usize);
        let area = RepairHeader::BYTES + config.repair_bytes() as usize;
        Self {
            machine: Member::new(config, 0).expect("a group"),
            rings: vec![vec![0xee; ring]; n],
            rows: vec![vec![0; 8 * ROW_WORDS]; n],
            areas: vec![vec![0; area]; n],
            private: vec![vec![0xdd; ring]; n],
            tail: 0,
            begun: 0,
            has_ended: false,
            sent: Vec::new(),
            from: vec![0; n],
            delivered: 0,
            has_crashed: false,
            lie: None,
        }
    }

    /// Reports whether the node is alive and follows the protocol.
    fn is_honest(&self) -> bool {
        !self.has_crashed && self.lie.is_none() && self.machine.status() != Status::Left
    }

    /// The row that it shows. A member that withholds accuses only the `known` suspects.
    fn row(&self, known: Members) -> Row {
        let (mut row, config) = (self.machine.row, self.machine.config());
        if self.lie.is_some() {
            let accused = row.suspected.union(row.wedged).minus(known);
            (row.suspected, row.wedged) = (row.suspected.minus(accused), row.wedged.minus(accused));
        }
        match self.lie {
            Some((Withheld::Wedged, before)) => row.wedged = before.wedged,
            Some((Withheld::Suspected, before)) => row.suspected = before.suspected,
            Some((Withheld::Received, before)) => row.received = before.received,
            Some((Withheld::Finished, _)) => row.goodbye = row::FINISHED,
            Some((Withheld::Turns(more), _)) => {
                let claim = u64::from(more) % (u64::from(config.window) + 1);
                row.suspected.iter().for_each(|of| row.received[of.index()] += claim);
            }
            Some((Withheld::Repairs, _)) | None => {}
        }
        row
    }

    fn has_come_to_its_end(&self) -> bool {
        !matches!(self.machine.status(), Status::Open | Status::Failing)
    }

    fn me(&self) -> usize {
        self.machine.config().rank.index()
    }

    /// Writes a record to the own ring, if its turns may begin.
    fn append(&mut self, record: Record, payload: &[u8]) -> bool {
        let (config, me) = (*self.machine.config(), self.me());
        let (head, turn) = self.machine.freed();
        let turns = self.begun + record.turns();
        let may = config.senders.contains(config.rank)
            && !self.has_ended
            && turns <= turn + u64::from(config.window)
            && self.tail + record.bytes() <= head + config.capacity;
        if !may {
            return false;
        }
        let mut bytes = header(record, self.tail).to_le_bytes().to_vec();
        bytes.extend_from_slice(payload);
        for (at, byte) in (self.tail..).zip(bytes) {
            self.rings[me][(at & (config.capacity - 1)) as usize] = byte;
        }
        self.tail += record.bytes();
        self.begun = turns;
        true
    }
}

impl CheckedGroup {
    /// A group with `config` at every member, except for the rank.
    pub fn new(config: Config) -> Self {
        let n = config.members;
        let node = |rank| GroupNode::new(Config { rank: Rank(rank), ..config });
        Self {
            nodes: (0..n).map(node).collect(),
            links: vec![vec![VecDeque::new(); n.into()]; n.into()],
            order: Vec::new(),
            now_ns: 0,
            was_accused: false,
            has_failed: false,
            writes: 0,
        }
    }

    fn member(&self, by: u8) -> usize {
        usize::from(by) % self.nodes.len()
    }

    /// Messages that all members together have delivered, and those of one member.
    pub fn delivered(&self, by: u8) -> usize {
        self.nodes[self.member(by)].delivered
    }

    /// The time, in nanoseconds.
    pub fn now_ns(&self) -> u64 {
        self.now_ns
    }

    /// The machine of a member.
    pub fn machine(&self, by: u8) -> &Member {
        &self.nodes[self.member(by)].machine
    }

    fn send(&mut self, by: usize, len: u8) -> bool {
        let node = &mut self.nodes[by];
        let len = u32::from(len) % (node.machine.config().max_message + 1);
        let number = node.sent.len();
        let payload: Vec<u8> = (0..len).map(|i| (by * 101 + number * 7) as u8 ^ i as u8).collect();
        let was_sent = node.append(Record::Message(len), &payload);
        if was_sent {
            node.sent.push(payload);
        }
        was_sent
    }

    /// Turns of a member that it has pushed.
    pub fn pushed_turns(&self, by: usize) -> u64 {
        self.nodes[by].machine.pushed_turns()
    }

    /// One pass of a member: the drive loop.
    pub fn poll(&mut self, by: usize, after_ns: u64) {
        self.now_ns += after_ns;
        let now = self.now_ns;
        if self.nodes[by].has_crashed {
            return;
        }
        self.take_in(by, now);
        loop {
            let GroupNode { machine, private, .. } = &mut self.nodes[by];
            let Some(push) = machine.next_push(now, |of, at| word(&private[of.index()], at)) else {
                break;
            };
            self.post(by, push);
        }
        let machine = &self.nodes[by].machine;
        assert!(machine.pushed_turns() <= machine.sent_turns(), "turns that were never sent");
        self.deliver(by);
        let nulls = self.nodes[by].machine.nulls_due();
        if nulls > 0 {
            self.nodes[by].append(Record::Nulls(nulls), &[]);
        }
    }

    fn take_in(&mut self, by: usize, now: u64) {
        let GroupNode { machine, rings, rows, areas, private, tail, .. } = &mut self.nodes[by];
        for from in machine.reachable().iter() {
            machine.on_row(from, now, |at| word(&rows[from.index()], 8 * u64::from(at)));
        }
        machine.on_tail(*tail, now);
        while let Some(CopyIn { of, span }) = machine.next_copy() {
            let (to, from) = (&mut private[of.index()], &rings[of.index()]);
            to[span.range()].copy_from_slice(&from[span.range()]);
        }
        let load =
            |areas: &[Vec<u8>], from: Rank, at: u8| word(&areas[from.index()], 8 * u64::from(at));
        while let Some(copy) = machine.next_repair(|from, at| load(areas, from, at)) {
            let at = RepairHeader::BYTES + copy.at as usize;
            let bytes = &areas[copy.from.index()][at..at + copy.span.len as usize];
            private[copy.of.index()][copy.span.range()].copy_from_slice(bytes);
        }
    }

    /// The members that have crashed, or that an honest member suspects.
    fn known(&self) -> Members {
        let ranks = (0..).map(Rank).zip(&self.nodes);
        let crashed: Members = ranks.filter(|(_, n)| n.has_crashed).map(|(rank, _)| rank).collect();
        let honest = self.nodes.iter().filter(|node| node.is_honest());
        honest.map(|node| node.machine.suspected()).fold(crashed, Members::union)
    }

    fn post(&mut self, by: usize, push: Push) {
        let node = &self.nodes[by];
        let ring = |ring: &[u8], from: u64, len: u64| -> Vec<u8> {
            let capacity = node.machine.config().capacity;
            (from..from + len).map(|at| ring[(at & (capacity - 1)) as usize]).collect()
        };
        let landing = match push.write {
            Write::Slots(Span { offset, len }) => {
                let bytes = ring(&node.rings[by], offset, len);
                MemberWrite { memory: WrittenMemory::Slots, offset: offset as usize, bytes }
            }
            Write::Row(words) => {
                let mut out = [0; ROW_WORDS];
                let count =
                    node.row(self.known()).store(node.machine.config().members, words, &mut out);
                let bytes = out[..count].iter().flat_map(|word| word.to_le_bytes()).collect();
                MemberWrite {
                    memory: WrittenMemory::Row,
                    offset: 8 * usize::from(words.first),
                    bytes,
                }
            }
            Write::Repair(mut repair) => {
                if matches!(node.lie, Some((Withheld::Repairs, _))) {
                    repair.len = 0;
                }
                let header = repair.words();
                let mut bytes: Vec<u8> =
                    header.iter().flat_map(|word| word.to_le_bytes()).collect();
                bytes.extend(ring(&node.private[repair.of.index()], repair.position, repair.len));
                MemberWrite { memory: WrittenMemory::Area, offset: 0, bytes }
            }
        };
        for to in push.to.iter() {
            self.writes += 1;
            self.links[by][to.index()].push_back(landing.clone());
        }
    }

    fn land(&mut self, from: usize, to: usize, count: usize) {
        for _ in 0..count {
            let Some(landing) = self.links[from][to].pop_front() else { return };
            self.nodes[to].receive(from, &landing, |_| true);
        }
    }

    /// The next write begins to arrive, and stays on its way.
    fn begin(&mut self, from: usize, to: usize, choice: u8) {
        if let Some(landing) = self.links[from][to].front() {
            let chosen = |at| chosen(choice, at, landing.bytes.len());
            self.nodes[to].receive(from, landing, chosen);
        }
    }

    fn deliver(&mut self, by: usize) {
        loop {
            let GroupNode { machine, private, .. } = &mut self.nodes[by];
            let next = machine.next_delivery(|of, at| word(&private[of.index()], at));
            let Some(Delivery { from, span, turn }) = next else { return };
            let (ring, capacity) = (&private[from.index()], machine.config().capacity);
            let range = span.offset..span.offset + span.len;
            let bytes: Vec<u8> = range.map(|at| ring[(at & (capacity - 1)) as usize]).collect();
            self.check_delivery(by, from, turn, &bytes);
        }
    }

    fn check_delivery(&mut self, by: usize, from: Rank, turn: u64, bytes: &[u8]) {
        if self.nodes[by].lie.is_some() {
            return; // what a dishonest member delivers is not checked
        }
        let number = self.nodes[by].from[from.index()];
        assert_eq!(&self.nodes[from.index()].sent[number], bytes, "message {number} of {from}");
        let needed = {
            let machine = &self.nodes[by].machine;
            machine.config().all().minus(machine.suspected())
        };
        for other in needed.iter().filter(|other| self.nodes[other.index()].lie.is_none()) {
            let has = self.nodes[other.index()].machine.received(other, from);
            assert!(has > turn, "{other} lacks turn {turn} of {from}, delivered at {by}");
        }
        let node = &mut self.nodes[by];
        node.from[from.index()] += 1;
        if node.delivered == self.order.len() {
            self.order.push((from, number));
        }
        assert_eq!(self.order[node.delivered], (from, number), "the order, at {by}");
        node.delivered += 1;
    }

    fn crash(&mut self, by: usize, keep: usize) {
        let standing = self.nodes.iter().filter(|node| !node.has_crashed).count();
        if standing == 1 || self.was_accused {
            return;
        }
        self.nodes[by].has_crashed = true;
        self.has_failed = true;
        for (to, link) in self.links[by].iter_mut().enumerate() {
            link.truncate(keep + to % 2);
        }
    }

    fn notice(&mut self, by: usize, of: usize) {
        if self.nodes[of].has_crashed {
            self.nodes[by].machine.unreachable(Rank(of as u8));
        }
    }

    /// Only the first member errs, and only where no member crashes: otherwise the suspects and
    /// the members that suspect them may both be survivors, of two groups. A member that has
    /// finished accuses none.
    fn accuse(&mut self, of: usize) {
        if self.nodes[0].has_come_to_its_end() {
            return;
        }
        let is_split = self.nodes.len() < 3 || self.has_failed && !self.was_accused;
        if of != 0 && !is_split {
            (self.was_accused, self.has_failed) = (true, true);
            self.nodes[0].machine.unreachable(Rank(of as u8));
        }
    }

    /// Ends all streams, lets everything arrive, and checks that all remaining members have
    /// delivered the same, and all that they could.
    pub fn settle(&mut self) {
        if self.nodes.iter().any(|node| node.lie.is_some()) {
            return self.settle_in_time();
        }
        let n = self.nodes.len();
        for by in 0..n {
            self.end(by);
        }
        let mut quiet = 0;
        while quiet < 3 {
            let before = self.writes;
            for by in 0..n {
                for of in 0..n {
                    self.notice(by, of);
                }
                self.end(by);
                self.poll(by, 200_000);
                for (from, to) in (0..n).flat_map(|from| (0..n).map(move |to| (from, to))) {
                    self.land(from, to, usize::MAX);
                }
            }
            quiet = if self.writes == before { quiet + 1 } else { 0 };
            assert!(self.now_ns < 1 << 60);
        }
        self.check_end();
    }

    /// A member that has failed already, or is the last but one that has not, continues
    /// unchanged. A member that withholds suspects no other for being slow.
    ///
    /// There is one such member at most: of two, one could hold back its counters until the
    /// other one has shown that its own are final, and then claim turns which some survivors
    /// count and others do not.
    fn withhold(&mut self, by: usize, what: Withheld) {
        let honest = self.nodes.iter().filter(|node| node.is_honest()).count();
        let is_alone = self.nodes.iter().all(|node| node.lie.is_none());
        if honest <= 2 || !self.nodes[by].is_honest() || !is_alone || self.was_accused {
            return;
        }
        let node = &mut self.nodes[by];
        // The others may have seen the row as it is: its counters must not go back.
        node.lie = Some((what, node.machine.row));
        node.machine.config.suspect_ns = u64::MAX;
        self.has_failed = true;
    }

    /// Ends all streams of a group in which members may withhold something, and lets time
    /// pass: all honest members reach the same end, and soon.
    ///
    /// A crash of a member makes the group fail. Where none has crashed, the first honest
    /// member suspects the first that is not.
    pub fn settle_in_time(&mut self) {
        let n = self.nodes.len();
        let suspect_ns = self.nodes.iter().map(|node| node.machine.config.suspect_ns).min();
        let suspect_ns = suspect_ns.expect("members");
        self.begin_end();
        let step = suspect_ns / 64 / n as u64;
        // One suspicion for each other member, each after `suspect_ns`; before these, the silence
        // of crashed members; and some time for writes in flight.
        let most = self.now_ns + (n as u64 + 1) * suspect_ns;
        while self.nodes.iter().any(|node| node.is_honest() && !node.has_come_to_its_end()) {
            assert!(self.now_ns < most, "too late: {:#?}", self.summary());
            for by in 0..n {
                self.end(by);
                self.poll(by, step);
                (0..n).for_each(|to| self.land(by, to, usize::MAX));
            }
        }
        self.check_end();
    }

    /// All members notice the crashes. Without any, an honest member suspects a dishonest one.
    fn begin_end(&mut self) {
        let n = self.nodes.len();
        (0..n * n).for_each(|pair| self.notice(pair / n, pair % n));
        let liar = self.nodes.iter().position(|node| node.lie.is_some());
        let crashed = self.nodes.iter().any(|node| node.has_crashed);
        let by = self.nodes.iter().position(GroupNode::is_honest);
        if let (Some(liar), Some(by), false) = (liar, by, crashed) {
            self.nodes[by].machine.unreachable(Rank(liar as u8));
        }
    }

    fn end(&mut self, by: usize) {
        let node = &mut self.nodes[by];
        if !node.has_ended {
            node.has_ended = node.append(Record::End, &[]);
        }
    }

    /// Describes the members of a group that does not end.
    fn summary(&self) -> Vec<std::string::String> {
        let line = |node: &GroupNode| {
            let (machine, row) = (&node.machine, &node.machine.row);
            let n = self.nodes.len();
            let reasons = &machine.agreement.reasons[..n];
            let (status, received) = (machine.status(), &row.received[..n]);
            let (suspected, wedged) = (row.suspected, row.wedged);
            std::format!(
                "{} {status:?}: has {received:?}, suspects [{suspected}] {reasons:?}, wedged \
                 [{wedged}], crashed {}",
                machine.config.rank,
                node.has_crashed
            )
        };
        self.nodes.iter().map(line).collect()
    }

    fn check_end(&self) {
        for node in self.nodes.iter().filter(|node| node.is_honest()) {
            match node.machine.status() {
                Status::Finished => {}
                Status::Excluded { .. } if self.was_accused => continue,
                other => panic!("{other:?}: {:#?}", self.summary()),
            }
            assert_eq!(node.delivered, self.order.len(), "all deliver all");
            for stream in &node.machine.streams {
                assert_eq!(stream.turn, stream.received, "what was acknowledged is delivered");
            }
            if !self.has_failed {
                assert!((0..self.nodes.len()).all(|of| node.from[of] == self.nodes[of].sent.len()));
            }
        }
    }
}

impl CheckedMachine for CheckedGroup {
    type Op = GroupOp;

    fn apply(&mut self, op: GroupOp) {
        match op {
            GroupOp::Send(by, len) => {
                self.send(self.member(by), len);
            }
            GroupOp::Waste(by, len) => {
                let by = self.member(by);
                let len = u32::from(len) % (self.nodes[by].machine.config().max_message + 1);
                self.nodes[by].append(Record::Unused(len), &[]);
            }
            GroupOp::Flush(by) => {
                let by = self.member(by);
                self.nodes[by].append(Record::Flush, &[]);
            }
            GroupOp::End(by) => self.end(self.member(by)),
            GroupOp::Poll(by, after_us) => self.poll(self.member(by), u64::from(after_us) * 1000),
            GroupOp::Land(from, to, count) => {
                self.land(self.member(from), self.member(to), count.into());
            }
            GroupOp::Begin(from, to, choice) => {
                self.begin(self.member(from), self.member(to), choice);
            }
            GroupOp::Crash(by, keep) => self.crash(self.member(by), keep.into()),
            GroupOp::Notice(by, of) => self.notice(self.member(by), self.member(of)),
            GroupOp::Accuse(of) => self.accuse(self.member(of)),
            GroupOp::Withhold(by, what) => self.withhold(self.member(by), what),
            GroupOp::Leave(by) => {
                let by = self.member(by);
                if !self.was_accused && !self.nodes[by].has_crashed {
                    self.has_failed = true;
                    self.nodes[by].machine.leave();
                }
            }
        }
    }
}
