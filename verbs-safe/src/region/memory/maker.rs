//! Identity of the process that made a mapping.

/// The process that made a mapping. A child of fork has the value, but not the pages: its addresses
/// may map other memory, and the pages belong to the parent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Maker(u32);

impl Maker {
    pub(crate) fn current() -> Maker {
        Maker(std::process::id())
    }

    pub(crate) fn is_current(self) -> bool {
        self == Maker::current()
    }
}
