//! Numbers that follow from a seed.

/// A generator of 64-bit numbers (SplitMix64: Steele, Lea, Flood, "Fast splittable pseudorandom
/// number generators", 2014).
#[derive(Debug, Clone)]
pub struct Random(u64);

impl Random {
    /// The numbers of `seed`.
    #[must_use]
    pub fn new(seed: u64) -> Random {
        Random(seed)
    }

    /// The next number.
    pub fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    /// A number below `n`.
    pub fn below(&mut self, n: u64) -> u64 {
        self.next_u64() % n
    }

    /// Draws whether an event of this probability happens now. Nothing is drawn for probability 0,
    /// so that adding a kind of event keeps old schedules.
    pub fn strikes(&mut self, probability: f64) -> bool {
        const SCALE: f64 = (1_u64 << 53) as f64;
        probability > 0.0 && ((self.next_u64() >> 11) as f64) < probability * SCALE
    }

    /// True once in `n` times; never for 0, for which nothing is drawn.
    pub fn one_in(&mut self, n: u64) -> bool {
        n > 0 && self.below(n) == 0
    }

    /// One of them.
    ///
    /// # Panics
    /// There are none.
    pub fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len() as u64) as usize]
    }
}
