//! Numbers that follow from a seed.

/// A generator of 64-bit numbers (SplitMix64, by Steele, Lea and Flood).
#[derive(Debug)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Random {
        Random(seed)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    /// A number below `n`.
    pub(crate) fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }

    /// Whether something of this probability happens now. Nothing is drawn for what
    /// never does, so that adding a kind keeps old schedules.
    pub(crate) fn strikes(&mut self, probability: f64) -> bool {
        const SCALE: f64 = (1_u64 << 53) as f64;
        probability > 0.0 && ((self.next() >> 11) as f64) < probability * SCALE
    }
}
