//! The receiver's memory, which all its links share.

use conn_core::shared_write::{
    AHEAD_AT, ANNOUNCED_AT, DECIDED_AT, Emptied, ExtentError, ExtentReceiver, ExtentSlot, FIRST_AT,
    GOODBYE_AT, Grant, LINK_BYTES, Layout, LinkSlot, LinkWords, LookOutcome, REPORTED_AT, TAIL_AT,
};
use verbs_safe::{ProtectionDomain, RemoteAccess, SharedRegion};

use crate::checked;
use crate::device::Device;
use crate::error::ConnectError;
use crate::ring::memory::peer_memory;

/// The ring of a receiver, and the owner of each part of it.
#[derive(Debug)]
pub(crate) struct ExtentRing {
    /// The domain of all links: the senders share the memory.
    pub(super) pd: ProtectionDomain,
    pub(super) region: SharedRegion,
    pub(super) core: ExtentReceiver<Box<[ExtentSlot]>, Box<[LinkSlot]>>,
    /// Error that has made it useless: any of the senders can have caused it.
    error: Option<ExtentError>,
}

impl ExtentRing {
    pub(super) fn new(device: &Device, layout: Layout) -> Result<ExtentRing, ConnectError> {
        let pd = device.new_domain()?;
        let region = peer_memory(device, &pd, layout.bytes(), RemoteAccess::ALL)?;
        let extents = vec![ExtentSlot::default(); layout.extents() as usize];
        let links = vec![LinkSlot::default(); layout.links() as usize];
        let core = ExtentReceiver::new(layout, extents.into(), links.into());
        let core = core.expect("storage of the layout's size");
        let mut ring = ExtentRing { pd, region, core, error: None };
        let _ = ring.region.store_u64(TAIL_AT as usize, 1_u64.to_le());
        ring.grant();
        Ok(ring)
    }

    pub(super) fn layout(&self) -> &Layout {
        self.core.layout()
    }

    fn at(&self, link: u32, offset: u64) -> usize {
        (self.layout().link_at(link) + offset) as usize
    }

    /// Clears the words of a link, for its next sender.
    pub(super) fn clear_link(&self, link: u32) {
        let _ = self.region.fill(self.at(link, 0), LINK_BYTES as usize, 0);
    }

    /// Grants free extents.
    fn grant(&mut self) {
        let before = self.core.decided();
        while let Some(Grant { entry_at, word }) = self.core.grant() {
            let stored = checked::publish(&self.region, entry_at as usize, word);
            debug_assert!(stored.is_ok(), "entries lie inside");
        }
        if self.core.decided() != before {
            let _ = checked::publish(&self.region, DECIDED_AT as usize, self.core.decided());
        }
    }

    /// Clears an extent, and grants it again.
    fn recycle(&mut self, emptied: Emptied) {
        let (offset, len) = (emptied.offset as usize, emptied.len as usize);
        let cleared = self.region.fill(offset, len, 0);
        debug_assert!(cleared.is_ok(), "extents lie inside");
        self.core.recycle(emptied);
        self.grant();
    }

    fn words(&self, link: u32) -> LinkWords {
        let word = |offset| {
            let word = self.region.observe_arrival(self.at(link, offset));
            word.map(u64::from_le).unwrap_or_default()
        };
        // In this order: see `LinkWords`.
        let reported = checked::observe(&self.region, self.at(link, REPORTED_AT));
        let (first, ahead) = (word(FIRST_AT), word(AHEAD_AT));
        let announced = checked::observe(&self.region, self.at(link, ANNOUNCED_AT));
        LinkWords { reported, first, ahead, announced }
    }

    /// Checks that it can be used.
    #[inline]
    pub(super) fn check(&self) -> Result<(), ExtentError> {
        self.error.map_or(Ok(()), Err)
    }

    /// The next message of a link: its offset and its length.
    #[inline]
    pub(super) fn next(&mut self, link: u32) -> Result<Option<(u64, u32)>, ExtentError> {
        self.check()?;
        loop {
            let at = match self.core.trailer_at(link)? {
                Some(at) => at,
                None => match self.find(link)? {
                    Some(at) => at,
                    None => return Ok(None),
                },
            };
            let words = checked::observe(&self.region, at as usize);
            match self.core.on_trailer(link, words)? {
                LookOutcome::Message { offset, len } => return Ok(Some((offset, len))),
                LookOutcome::End(emptied) => self.recycle(emptied),
                LookOutcome::Nothing => return Ok(None),
            }
        }
    }

    /// The next trailer of a link without a known extent.
    #[cold]
    fn find(&mut self, link: u32) -> Result<Option<u64>, ExtentError> {
        self.core.on_link(link, self.words(link))?;
        self.core.trailer_at(link)
    }

    /// Looks for a goodbye; returns true if it has been said.
    pub(super) fn hear_goodbye(&mut self, link: u32, is_last: bool) -> Result<bool, ExtentError> {
        let at = self.at(link, GOODBYE_AT);
        let look = || checked::observe(&self.region, at);
        let words = if is_last { checked::last_look(look) } else { look() };
        self.core.on_goodbye(link, words)
    }

    /// Continues the audit for a link, if it awaits the link's words.
    #[inline]
    pub(super) fn look_after(&mut self, link: u32) {
        if self.core.awaits(link) {
            self.core.audit(link, self.words(link));
            self.reclaim();
        }
    }

    /// Takes back the orphans of an audit that has just ended.
    #[cold]
    fn reclaim(&mut self) {
        while let Some(emptied) = self.core.orphan() {
            self.recycle(emptied);
        }
    }

    /// Closes the link of a sender, and begins an audit.
    pub(super) fn close(&mut self, link: u32) {
        if let Some(emptied) = self.core.close(link) {
            self.recycle(emptied);
        }
        let tail = self.region.observe_arrival(TAIL_AT as usize).map(u64::from_le);
        match self.core.begin_audit(tail.unwrap_or_default()) {
            // Most links are idle, or have advanced already.
            Ok(()) => (0..self.layout().links()).for_each(|link| self.look_after(link)),
            Err(e) => self.error = Some(e),
        }
        self.reclaim();
    }

    /// Checks that the tail is where the senders can have brought it.
    pub(super) fn check_tail(&mut self) {
        let tail = self.region.observe_arrival(TAIL_AT as usize).map(u64::from_le);
        if let Err(e) = self.core.check_tail(tail.unwrap_or_default()) {
            self.error.get_or_insert(e);
        }
    }
}
