//! Service of a queue pair.

use std::fmt;

use verbs_sys::{ibv_qp_type, ibv_wr_opcode};

/// The service of a queue pair.
///
/// | | RC | UC | UD |
/// |---|---|---|---|
/// | peers | one | one | any, each with an address handle |
/// | SEND, with immediate | yes | yes | yes, one MTU at most |
/// | WRITE, with immediate | yes | yes | no |
/// | READ, atomics | yes | no | no |
/// | what is lost | is sent again | is gone, without an error | is gone, without an error |
/// | no receive is posted | RNR: tried again | the message is dropped | the message is dropped |
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Transport {
    /// Reliable connection.
    #[default]
    Rc,
    /// Unreliable connection.
    Uc,
    /// Unreliable datagrams.
    Ud {
        /// The key that senders have to know; others' datagrams are dropped.
        qkey: u32,
    },
}

impl Transport {
    /// Reports whether messages are datagrams.
    #[must_use]
    pub fn is_datagram(self) -> bool {
        matches!(self, Transport::Ud { .. })
    }

    pub(crate) fn to_raw(self) -> ibv_qp_type {
        match self {
            Transport::Rc => ibv_qp_type::IBV_QPT_RC,
            Transport::Uc => ibv_qp_type::IBV_QPT_UC,
            Transport::Ud { .. } => ibv_qp_type::IBV_QPT_UD,
        }
    }

    /// Returns the operations that can be staged without naming a peer.
    pub(crate) fn to_its_peer(self) -> OpSet {
        match self {
            Transport::Rc => OpSet::from_opcodes(&[SENDS, WRITES, READS].concat()),
            Transport::Uc => OpSet::from_opcodes(&[SENDS, WRITES].concat()),
            Transport::Ud { .. } => OpSet::from_opcodes(&[]),
        }
    }
}

impl fmt::Display for Transport {
    /// `RC`, `UC` or `UD`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Transport::Rc => "RC",
            Transport::Uc => "UC",
            Transport::Ud { .. } => "UD",
        })
    }
}

const SENDS: &[ibv_wr_opcode] = &[ibv_wr_opcode::IBV_WR_SEND, ibv_wr_opcode::IBV_WR_SEND_WITH_IMM];

const WRITES: &[ibv_wr_opcode] =
    &[ibv_wr_opcode::IBV_WR_RDMA_WRITE, ibv_wr_opcode::IBV_WR_RDMA_WRITE_WITH_IMM];

const READS: &[ibv_wr_opcode] = &[
    ibv_wr_opcode::IBV_WR_RDMA_READ,
    ibv_wr_opcode::IBV_WR_ATOMIC_FETCH_AND_ADD,
    ibv_wr_opcode::IBV_WR_ATOMIC_CMP_AND_SWP,
];

/// A set of operations: a bit for each, by its number in verbs.h.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct OpSet(u32);

impl OpSet {
    fn from_opcodes(ops: &[ibv_wr_opcode]) -> OpSet {
        OpSet(ops.iter().fold(0, |set, op| set | 1 << op.0))
    }

    /// SEND, with and without immediate: what there is of datagrams.
    #[inline]
    pub(crate) const fn sends() -> OpSet {
        OpSet(1 << SENDS[0].0 | 1 << SENDS[1].0)
    }

    #[inline]
    pub(crate) fn has(self, op: ibv_wr_opcode) -> bool {
        self.0 & 1 << op.0 != 0
    }
}

#[cfg(test)]
mod tests;
