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
use crate::wire::{Wire, fields};

/// The first four bytes; senders; window, longest message and k; the ring; the three times.
type TermsFields = ([u8; 4], u64, [u32; 3], u64, [u64; 3]);
/// Rank, members, LID, MTU, GID.
type Head = (u8, u8, u16, u32, [u8; 16]);
/// A contact, and zeros.
type ContactFields = (Contact, u64);

/// Bytes of [`Terms`].
pub const TERMS_BYTES: usize = TermsFields::LEN;
const HEAD_BYTES: usize = Head::LEN;
const CONTACT_BYTES: usize = ContactFields::LEN;
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
        let fields: TermsFields = (
            [config.rank.0, config.members, policy, u8::from(config.is_mirrored)],
            config.senders.bits(),
            [config.window, config.max_message, k],
            config.capacity,
            [config.deadline_ns, config.health_ns, config.suspect_ns],
        );
        fields.encoded()
    }

    /// From bytes.
    ///
    /// # Errors
    /// [`MemberInfoError`]: they are no terms.
    pub fn decode(bytes: &[u8]) -> Result<Self, MemberInfoError> {
        let length = MemberInfoError::Length { found: bytes.len(), expected: TERMS_BYTES };
        let (fields, _) =
            TermsFields::split(bytes).filter(|(_, rest)| rest.is_empty()).ok_or(length)?;
        let ([rank, members, policy, mirrored], senders, numbers, capacity, times) = fields;
        let ([window, max_message, k], [deadline_ns, health_ns, suspect_ns]) = (numbers, times);
        let policy = match (policy, k) {
            (0, 0) => Policy::Opportunistic,
            (1, 0) => Policy::OpportunisticWithNulls,
            (2, k) => Policy::Every(k),
            _ => return Err(MemberInfoError::Malformed),
        };
        let config = Config {
            members,
            rank: Rank(rank),
            senders: Members::from_bits(senders),
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

fields! {
    Place { addr: u64, len: u64, rkey: u32 }
    Contact { qp_num: u32, psn: u32, rows: Place, slots: Place }
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
        let mut out = &mut out[..];
        let head: Head = (self.rank.0, self.members, self.lid, self.mtu_bytes, self.gid);
        head.put(&mut out);
        for contact in self.contacts.iter().take(self.members.into()) {
            let contact: ContactFields = (*contact, 0);
            contact.put(&mut out);
        }
        Self::bytes(self.members)
    }

    /// The member info of the member `rank` in a group of `members`, from bytes.
    ///
    /// # Errors
    /// [`MemberInfoError`]: they are none.
    pub fn decode(bytes: &[u8], rank: Rank, members: u8) -> Result<Self, MemberInfoError> {
        let expected = Self::bytes(members);
        let length = MemberInfoError::Length { found: bytes.len(), expected };
        if bytes.len() != expected {
            return Err(length);
        }
        let ((of, count, lid, mtu_bytes, gid), mut rest) = Head::split(bytes).ok_or(length)?;
        if [of, count] != [rank.0, members] || usize::from(members) > MAX_MEMBERS {
            return Err(MemberInfoError::Stranger);
        }
        let mut contacts = [Contact::default(); MAX_MEMBERS];
        for (of, to) in (0..members).map(Rank).zip(&mut contacts) {
            let (contact, zeros) = ContactFields::take(&mut rest).ok_or(length)?;
            if !contact.is_possible() {
                return Err(MemberInfoError::Contact(of));
            }
            if zeros != 0 {
                return Err(MemberInfoError::Malformed);
            }
            *to = contact;
        }
        Ok(Self { rank, members, lid, mtu_bytes, gid, contacts })
    }
}

impl Contact {
    /// Reports whether the numbers have 24 bits, and the memory ends in the address space.
    fn is_possible(&self) -> bool {
        [self.qp_num, self.psn].iter().all(|number| *number <= BITS_24)
            && [self.rows, self.slots].iter().all(|at| at.addr.checked_add(at.len).is_some())
    }
}
