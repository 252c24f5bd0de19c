//! Addresses that the two ends of a connection tell each other.

/// One end of a connection, as its peer needs to know it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Endpoint {
    /// The queue pair's number (24 bits).
    pub qp_num: u32,
    /// The first packet sequence number that it sends (24 bits).
    pub psn: u32,
    /// The port's LID; 0 on Ethernet.
    pub lid: u16,
    /// The port's GID, as on the wire.
    pub gid: [u8; 16],
}
