//! Operations drawn from a seed, as a network with faults has them.

use super::{
    CheckedConnection, ConnectionOp, ConnectionParams, MAX_LENGTH, PacketDirection, RequestDraft,
};

/// Pseudo-random numbers (splitmix64).
#[derive(Clone, Debug)]
pub struct Random(pub u64);

impl Random {
    /// The next number.
    pub fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    /// A number below `end`.
    pub fn below(&mut self, end: u64) -> u64 {
        self.draw() % end
    }

    fn percent(&mut self, percent: u8) -> bool {
        self.below(100) < percent.into()
    }
}

/// Rates of the network's faults, in percent of the packets.
#[derive(Clone, Copy, Debug, Default)]
pub struct FaultRates {
    /// Packets that are lost.
    pub loss: u8,
    /// Packets that arrive twice.
    pub duplication: u8,
    /// Packets that others overtake.
    pub reordering: u8,
    /// Packets that are marked.
    pub congestion: u8,
    /// Rate at which the peer has no receive request.
    pub late_receives: u8,
    /// Rate at which memory of the peer is not there for a while.
    pub absent: u8,
}

/// Posts `requests` requests over a network with faults, until all are complete; returns how many
/// packets the requester has sent.
pub fn random_run(seed: u64, faults: FaultRates, requests: u64) -> u64 {
    let mut random = Random(seed);
    let [before_wrap, window, read_packets, reads, entries, timeout, ..] =
        random.draw().to_le_bytes();
    let params = ConnectionParams { before_wrap, window, read_packets, reads, entries, timeout };
    let mut connection = CheckedConnection::new(params);
    for _ in 0..200_000 {
        let (posted, completed) = connection.counts();
        if completed == requests {
            connection.settle();
            return connection.transmitted;
        }
        if posted < requests && random.percent(60) {
            connection.apply(ConnectionOp::Post(draft(&mut random)));
        }
        if !random.percent(faults.late_receives) {
            connection.apply(ConnectionOp::Receives(random.below(3) as u8));
        }
        if faults.absent > 0 && random.percent(faults.absent) {
            connection.hold_back(random.below(4) as u32);
        }
        connection.apply(ConnectionOp::Transmit(random.below(6) as u8));
        carry(&mut connection, &mut random, faults, PacketDirection::ToResponder);
        connection.apply(ConnectionOp::Respond(random.below(8) as u8));
        carry(&mut connection, &mut random, faults, PacketDirection::ToRequester);
        connection.apply(ConnectionOp::Pass(random.below(20) as u16));
        if random.percent(70) {
            connection.apply(ConnectionOp::Poll);
        }
    }
    panic!("{:?} of {requests} requests complete", connection.counts());
}

fn carry(
    connection: &mut CheckedConnection,
    random: &mut Random,
    faults: FaultRates,
    way: PacketDirection,
) {
    for _ in 0..random.below(8) {
        let which = if random.percent(faults.reordering) { random.below(5) as u8 } else { 0 };
        if random.percent(faults.duplication) {
            connection.apply(ConnectionOp::Duplicate(way, which));
        }
        if faults.congestion > 0 && random.percent(faults.congestion) {
            connection.apply(ConnectionOp::Mark(way, which));
        }
        let is_lost = random.percent(faults.loss);
        connection.apply(if is_lost {
            ConnectionOp::Lose(way, which)
        } else {
            ConnectionOp::Deliver(way, which)
        });
    }
}

/// A request: small, whole packets, or anything.
pub(super) fn draft(random: &mut Random) -> RequestDraft {
    let length = match random.below(4) {
        0 => random.below(20),
        1 => random.below(9) * 256,
        _ => random.below(MAX_LENGTH.into()),
    };
    RequestDraft {
        kind: random.below(9) as u8,
        length: length as u16,
        offset: random.below(4096) as u16,
        is_signaled: random.percent(50),
        is_fenced: random.percent(10),
        is_solicited: random.percent(30),
    }
}
