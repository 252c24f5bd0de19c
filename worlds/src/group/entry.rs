//! Ways into a group: all members in one process, or by a leader that the others connect to, and
//! strangers first.

use std::net::{SocketAddr, TcpStream};

use host::time;
use rdma_conn::device::Device;
use rdma_conn::error::ConnectError;
use rdma_conn::handshake::{HELLO_LIMIT, HandshakeError};
use rdma_conn::multicast::{
    GATHERING, Gathering, Group, JoinError, Leader, SET_UP, in_process, join,
};

use super::limits::config;
use crate::case::WorldCase;
use crate::checks::slack;
use crate::meet::{connect_strangers, expect_refusal};
use crate::places::Site;

/// The way of one member into its group.
pub(super) enum Entry {
    /// It was made with all others.
    Made(Box<Group>),
    /// It gathers the others.
    Leads { leader: Leader, strangers: Vec<TcpStream> },
    /// It joins the leader at this address.
    Joins(SocketAddr),
}

impl Entry {
    /// The entries of all members: where there are several devices, or strangers, the first one
    /// leads.
    pub(super) fn all(case: &WorldCase, sites: &[Site]) -> Result<Vec<Entry>, JoinError> {
        let config = config(case);
        if sites.len() == 1 && case.strangers.is_none() {
            let members = in_process(&sites[0].device, &config)?;
            return Ok(members.into_iter().map(Box::new).map(Entry::Made).collect());
        }
        let leader = Leader::bind("127.0.0.1:0").expect("a port");
        let address = leader.local_addr();
        let count = case.strangers.map_or(0, |strangers| strangers.count);
        let strangers = connect_strangers(address, count);
        let joining = (1..config.members).map(|_| Entry::Joins(address));
        Ok([Entry::Leads { leader, strangers }].into_iter().chain(joining).collect())
    }

    /// Enters the group, or fails to, within the bound of a set-up.
    pub(super) fn enter(self, case: &WorldCase, device: &Device) -> Result<Group, JoinError> {
        let awaits_strangers = case.strangers.is_some_and(|strangers| strangers.are_awaited);
        // Members connect when strangers have been refused.
        let late = HELLO_LIMIT + slack(case);
        let limit = if awaits_strangers { late } else { slack(case) } + SET_UP;
        let start = time::now();
        let entered = match self {
            Entry::Made(member) => Ok(*member),
            Entry::Leads { leader, strangers } => {
                let refused = if awaits_strangers { strangers.len() } else { 0 };
                gather(case, device, (&leader, strangers), refused)
            }
            Entry::Joins(leader) => {
                if awaits_strangers {
                    time::sleep(late);
                }
                join(leader, device, &config(case)).map(|joined| joined.group)
            }
        };
        let took = time::since(start);
        assert!(took <= limit, "the set-up of a member took {took:?}, its limit is {limit:?}");
        entered
    }
}

/// Gathers the group, and refuses so many strangers meanwhile.
fn gather(
    case: &WorldCase,
    device: &Device,
    (leader, mut strangers): (&Leader, Vec<TcpStream>),
    expected: usize,
) -> Result<Group, JoinError> {
    let (start, mut refused) = (time::now(), 0);
    let gathered = leader.gather_observed(GATHERING, device, &config(case), b"", |event| {
        let Gathering::Refused { error } = event else { return };
        let took = time::since(start);
        let is_late = matches!(error, ConnectError::Handshake(HandshakeError::TimedOut(_)));
        assert!(is_late, "a stranger: {error}");
        assert!(took <= HELLO_LIMIT + slack(case), "a stranger was refused after {took:?}");
        refused += 1;
    });
    assert_eq!(refused, expected, "strangers that were refused");
    strangers.iter_mut().take(refused).for_each(expect_refusal);
    gathered.map(|joined| joined.group)
}
