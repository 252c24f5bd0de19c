//! GIDs: a port's addresses, and which of them a connection should use.

use std::fmt;
use std::net::Ipv6Addr;

use verbs_sys::{ibv_gid, ibv_gid_entry, ibv_gid_type, ibv_query_gid_ex};

use crate::error::{ChooseGidError, QueryPortError};
use crate::object::context::Context;

/// Form of the packets that have a GID.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GidKind {
    /// InfiniBand.
    Ib,
    /// RoCE v1: Ethernet frames, one broadcast domain.
    RoceV1,
    /// RoCE v2: UDP, can be routed.
    RoceV2,
    /// The library does not tell.
    Unknown,
}

/// One entry of a port's GID table that is not empty.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GidEntry {
    /// Its index, by which a queue pair names it.
    pub index: u32,
    /// The address, as on the wire.
    pub gid: [u8; 16],
    /// Form of the packets with this GID.
    pub kind: GidKind,
    /// The index of the network interface that it belongs to; 0 where there is none.
    pub interface: u32,
}

/// A GID with its index.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Gid {
    /// Its index in the port's table.
    pub index: u32,
    /// The address, as on the wire.
    pub gid: [u8; 16],
}

impl fmt::Display for Gid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Ipv6Addr::from(self.gid).fmt(f)
    }
}

impl fmt::Debug for Gid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Gid({self} at {})", self.index)
    }
}

impl Context {
    /// The entries of a port's GID table that are not empty.
    ///
    /// # Errors
    /// [`QueryPortError`] where the port cannot be queried.
    pub fn gid_table(&self, port: u8) -> Result<Vec<GidEntry>, QueryPortError> {
        let len = self.port(port)?.gid_table_len;
        Ok((0..len).filter_map(|index| self.gid_entry(port, index)).collect())
    }

    /// The GID that a connection through `port` should use: the one at index `wanted`, or else the
    /// best in the table. RoCE v2 with an IPv4-mapped address is best, since it is routable and its
    /// peers have one, too; then other RoCE v2; then the others in the order of the table;
    /// link-local ones are last.
    ///
    /// # Errors
    /// [`ChooseGidError`]: no GID, or none at that index.
    ///
    /// ```
    /// # let devices = verbs_safe::devices(soft_rnic::table())?;
    /// # let context = devices[0].open()?;
    /// let gid = context.choose_gid(1, None)?;
    /// assert_eq!(context.choose_gid(1, Some(gid.index))?, gid);
    /// assert!(context.choose_gid(1, Some(77_777)).is_err());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn choose_gid(&self, port: u8, wanted: Option<u32>) -> Result<Gid, ChooseGidError> {
        let table = self.gid_table(port)?;
        let chosen = match wanted {
            Some(index) => table.iter().find(|e| e.index == index),
            None => preferred(&table),
        };
        match (chosen, wanted) {
            (Some(e), _) => Ok(Gid { index: e.index, gid: e.gid }),
            (None, Some(wanted)) => {
                let present = table.iter().map(|e| e.index).collect();
                Err(ChooseGidError::NoSuchIndex { port, wanted, present })
            }
            (None, None) => Err(ChooseGidError::Empty { port }),
        }
    }

    /// The entry at `index`, `None` where it is empty.
    pub(crate) fn gid_entry(&self, port: u8, index: u32) -> Option<GidEntry> {
        let mut raw = ibv_gid_entry::default();
        let (table, context) = (&self.inner.table, self.inner.raw.as_ptr());
        // SAFETY: `self.inner` keeps the context alive, which belongs to this table.
        let answer = unsafe { ibv_query_gid_ex(table, context, port.into(), index, &mut raw) };
        let mut entry = GidEntry { index, gid: [0; 16], kind: GidKind::Unknown, interface: 0 };
        match answer {
            Some(0) => {
                entry.kind = GidKind::new(raw.gid_type);
                entry.interface = raw.ndev_ifindex;
                entry.gid = bytes(raw.gid);
            }
            // No second query: most entries of a table of a thousand are empty.
            Some(libc::ENODATA) => return None,
            _ => entry.gid = self.plain_gid(port, index)?,
        }
        (entry.gid != [0; 16]).then_some(entry)
    }

    /// The GID as libraries before rdma-core 32 give it: without its kind.
    fn plain_gid(&self, port: u8, index: u32) -> Option<[u8; 16]> {
        let mut gid = ibv_gid::default();
        let (table, context) = (&self.inner.table, self.inner.raw.as_ptr());
        // SAFETY: `self.inner` keeps the context alive; `gid` is writable.
        let result =
            unsafe { (table.query_gid)(context, port, i32::try_from(index).ok()?, &mut gid) };
        (result == 0).then(|| bytes(gid))
    }
}

fn bytes(gid: ibv_gid) -> [u8; 16] {
    // SAFETY: every member of the union is 16 plain bytes.
    unsafe { gid.raw }
}

impl GidKind {
    fn new(raw: u32) -> GidKind {
        match ibv_gid_type(raw) {
            ibv_gid_type::IBV_GID_TYPE_IB => GidKind::Ib,
            ibv_gid_type::IBV_GID_TYPE_ROCE_V1 => GidKind::RoceV1,
            ibv_gid_type::IBV_GID_TYPE_ROCE_V2 => GidKind::RoceV2,
            _ => GidKind::Unknown,
        }
    }
}

/// The entry that [`Context::choose_gid`] takes; the first of equals.
fn preferred(table: &[GidEntry]) -> Option<&GidEntry> {
    table.iter().min_by_key(|e| (rank(e), e.index))
}

fn rank(entry: &GidEntry) -> u32 {
    let address = Ipv6Addr::from(entry.gid);
    let v4 = address.to_ipv4_mapped();
    let link_local = address.is_unicast_link_local() || v4.is_some_and(|a| a.is_link_local());
    match (entry.kind, v4) {
        // Every InfiniBand port's first GID is in the default subnet fe80::/64: it is the one.
        (GidKind::Ib, _) => 2,
        _ if link_local => 3,
        (GidKind::RoceV2 | GidKind::Unknown, Some(_)) => 0,
        (GidKind::RoceV2, None) => 1,
        _ => 2,
    }
}

#[cfg(test)]
mod tests;
