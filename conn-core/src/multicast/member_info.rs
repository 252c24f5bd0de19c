//! Terms and addresses that members exchange before they can write to each other.
//!
//! When the leader of a group has found its members, it hands out [`Terms`], one set to
//! each. Every member answers with its [`MemberInfo`], and gets those of all. Both have a length
//! that is known beforehand; all integers are little-endian.
//!
//! | bytes | terms |
//! |---|---|
//! | 1, 1, 1 | rank; members; policy: 0 opportunistic, 1 with nulls, 2 every k |
//! | 1 | 1 if rings are mirrored, else 0 |
//! | 8 | senders, one bit each |
//! | 4, 4, 4 | window; longest message in bytes; k, or 0 |
//! | 8 | bytes of a ring |
//! | 8, 8, 8 | deadline, health and suspicion, in nanoseconds |
//!
//! | bytes | member info |
//! |---|---|
//! | 1, 1 | rank; members |
//! | 2, 4 | LID; MTU of the port in bytes |
//! | 16 | GID |
//! | 56 for each member | contact for that member; of the own rank, all 0 |
//!
//! | bytes | contact |
//! |---|---|
//! | 4, 4 | queue pair number; first packet sequence number; 24 bits each |
//! | 8, 8, 4 | row and repair area: address, bytes, key |
//! | 8, 8, 4 | slot ring: address, bytes, key |
//! | 8 | 0 |

use super::{Config, ConfigError, MAX_MEMBERS, Members, Policy, Rank};

/// Bytes of [`Terms`].
pub const TERMS_BYTES: usize = 56;
const HEAD_BYTES: usize = 24;
const CONTACT_BYTES: usize = 56;
/// Bytes of the longest [`MemberInfo`].
pub const MAX_MEMBER_INFO_BYTES: usize = HEAD_BYTES + MAX_MEMBERS * CONTACT_BYTES;
const BITS_24: u32 = (1 << 24) - 1;

/// Bytes that are no terms, or no member info.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MemberInfoError {
    /// It is not as long as it should be.
    #[error("{found} bytes instead of {expected}")]
    Length {
        /// Bytes that there are.
        found: usize,
        /// Bytes that there should be.
        expected: usize,
    },
    /// There can be no such group.
    #[error("{0}")]
    Group(ConfigError),
    /// An unknown policy, or a field that must be 0 and is not.
    #[error("a field has an unknown value")]
    Malformed,
    /// The member info is another member's, or of another group.
    #[error("it is of another member, or of another group")]
    Stranger,
    /// A number of more than 24 bits, or memory beyond the end of the address space.
    #[error("its contact for {0} cannot be")]
    Contact(Rank),
}

/// Writes fields one after the other.
struct FieldWriter<'a>(&'a mut [u8]);

impl FieldWriter<'_> {
    fn put(&mut self, bytes: &[u8]) {
        let (front, rest) = core::mem::take(&mut self.0).split_at_mut(bytes.len());
        front.copy_from_slice(bytes);
        self.0 = rest;
    }
}

/// Reads fields one after the other; their number was checked before.
struct FieldReader<'a>(&'a [u8]);

impl FieldReader<'_> {
    fn take<const N: usize>(&mut self) -> [u8; N] {
        let mut field = [0; N];
        let (front, rest) = self.0.split_at(N);
        field.copy_from_slice(front);
        self.0 = rest;
        field
    }

    fn u8(&mut self) -> u8 {
        let [byte] = self.take();
        byte
    }

    fn u32(&mut self) -> u32 {
        u32::from_le_bytes(self.take())
    }

    fn u64(&mut self) -> u64 {
        u64::from_le_bytes(self.take())
    }
}

/// A group, and the rank of the member that gets these terms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Terms(pub Config);

impl Terms {
    /// As bytes.
    pub fn encode(&self) -> [u8; TERMS_BYTES] {
        let config = &self.0;
        let (policy, k) = match config.policy {
            Policy::Opportunistic => (0, 0),
            Policy::OpportunisticWithNulls => (1, 0),
            Policy::Every(k) => (2, k),
        };
        let mut bytes = [0; TERMS_BYTES];
        let mut out = FieldWriter(&mut bytes);
        out.put(&[config.rank.0, config.members, policy, u8::from(config.is_mirrored)]);
        out.put(&config.senders.bits().to_le_bytes());
        for field in [config.window, config.max_message, k] {
            out.put(&field.to_le_bytes());
        }
        let times = [config.deadline_ns, config.health_ns, config.suspect_ns];
        out.put(&config.capacity.to_le_bytes());
        times.iter().for_each(|field| out.put(&field.to_le_bytes()));
        bytes
    }

    /// From bytes.
    ///
    /// # Errors
    /// [`MemberInfoError`]: they are no terms.
    pub fn decode(bytes: &[u8]) -> Result<Self, MemberInfoError> {
        let length = MemberInfoError::Length { found: bytes.len(), expected: TERMS_BYTES };
        let mut fields = FieldReader(<&[u8; TERMS_BYTES]>::try_from(bytes).map_err(|_| length)?);
        let [rank, members, policy, mirrored] = fields.take();
        let senders = Members::from_bits(fields.u64());
        let [window, max_message, k] = [0; 3].map(|_: u8| fields.u32());
        let policy = match (policy, k) {
            (0, 0) => Policy::Opportunistic,
            (1, 0) => Policy::OpportunisticWithNulls,
            (2, k) => Policy::Every(k),
            _ => return Err(MemberInfoError::Malformed),
        };
        let [capacity, deadline_ns, health_ns, suspect_ns] = [0; 4].map(|_: u8| fields.u64());
        let config = Config {
            members,
            rank: Rank(rank),
            senders,
            window,
            max_message,
            capacity,
            is_mirrored: mirrored == 1,
            policy,
            deadline_ns,
            health_ns,
            suspect_ns,
        };
        if mirrored > 1 {
            return Err(MemberInfoError::Malformed);
        }
        config.check().map_err(MemberInfoError::Group)?;
        Ok(Self(config))
    }
}

/// Memory of a member that a peer writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Place {
    /// Its address.
    pub addr: u64,
    /// Its bytes.
    pub len: u64,
    /// Its key.
    pub rkey: u32,
}

/// Queue pair and memory by which one member reaches another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Contact {
    /// Queue pair number, 24 bits.
    pub qp_num: u32,
    /// First packet sequence number, 24 bits.
    pub psn: u32,
    /// Destination of the other's row and repair area.
    pub rows: Place,
    /// Destination of its slots.
    pub slots: Place,
}

/// Addresses at which the others reach a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemberInfo {
    /// The rank of the member that sends it.
    pub rank: Rank,
    /// Number of members.
    pub members: u8,
    /// LID of the port; 0 where the link layer has none.
    pub lid: u16,
    /// Its MTU, in bytes.
    pub mtu_bytes: u32,
    /// Its GID, in network order.
    pub gid: [u8; 16],
    /// For each member by rank, how it reaches this one.
    pub contacts: [Contact; MAX_MEMBERS],
}

impl MemberInfo {
    /// Bytes of a member info in a group of this number of members, which [`Config::check`] has
    /// passed.
    pub const fn bytes(members: u8) -> usize {
        HEAD_BYTES + members as usize * CONTACT_BYTES
    }

    /// As bytes, at the beginning of `out`; returns how many.
    pub fn encode(&self, out: &mut [u8; MAX_MEMBER_INFO_BYTES]) -> usize {
        let mut out = FieldWriter(out);
        out.put(&[self.rank.0, self.members]);
        out.put(&self.lid.to_le_bytes());
        out.put(&self.mtu_bytes.to_le_bytes());
        out.put(&self.gid);
        for contact in self.contacts.iter().take(self.members.into()) {
            out.put(&contact.qp_num.to_le_bytes());
            out.put(&contact.psn.to_le_bytes());
            for place in [contact.rows, contact.slots] {
                out.put(&place.addr.to_le_bytes());
                out.put(&place.len.to_le_bytes());
                out.put(&place.rkey.to_le_bytes());
            }
            out.put(&[0; 8]);
        }
        Self::bytes(self.members)
    }

    /// The member info of the member `rank` in a group of `members`, from bytes.
    ///
    /// # Errors
    /// [`MemberInfoError`]: they are none.
    pub fn decode(bytes: &[u8], rank: Rank, members: u8) -> Result<Self, MemberInfoError> {
        let expected = Self::bytes(members);
        if bytes.len() != expected {
            return Err(MemberInfoError::Length { found: bytes.len(), expected });
        }
        let mut fields = FieldReader(bytes);
        if [fields.u8(), fields.u8()] != [rank.0, members] || usize::from(members) > MAX_MEMBERS {
            return Err(MemberInfoError::Stranger);
        }
        let lid = u16::from_le_bytes(fields.take());
        let (mtu_bytes, gid) = (fields.u32(), fields.take());
        let mut contacts = [Contact::default(); MAX_MEMBERS];
        for (of, contact) in (0..members).map(Rank).zip(&mut contacts) {
            *contact = contact_of(&mut fields, of)?;
        }
        Ok(Self { rank, members, lid, mtu_bytes, gid, contacts })
    }
}

fn contact_of(fields: &mut FieldReader<'_>, of: Rank) -> Result<Contact, MemberInfoError> {
    let (qp_num, psn) = (fields.u32(), fields.u32());
    let mut place = || Place { addr: fields.u64(), len: fields.u64(), rkey: fields.u32() };
    let (rows, slots) = (place(), place());
    let reaches = |place: &Place| place.addr.checked_add(place.len).is_some();
    if qp_num > BITS_24 || psn > BITS_24 || !reaches(&rows) || !reaches(&slots) {
        return Err(MemberInfoError::Contact(of));
    }
    match fields.u64() {
        0 => Ok(Contact { qp_num, psn, rows, slots }),
        _ => Err(MemberInfoError::Malformed),
    }
}
