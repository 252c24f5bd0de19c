//! The bytes of a trace.

/// The bytes of a file, as words; what is behind its end is 0.
pub(super) struct TraceWords<'a>(pub(super) &'a [u8]);

impl TraceWords<'_> {
    pub(super) fn len(&self) -> usize {
        self.0.len() / 8
    }

    pub(super) fn get(&self, at: usize) -> u64 {
        let chunk = self.0.as_chunks::<8>().0.get(at);
        chunk.map_or(0, |bytes| u64::from_ne_bytes(*bytes))
    }
}
