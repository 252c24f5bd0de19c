//! Plays a case of a group: members that threads drive, each on a device of its own where the place
//! has several. All but the last one send.

mod check;
mod entry;
mod limits;
mod member;
mod outcome;

use std::sync::Arc;

use host::{thread, world};
use rdma_conn::multicast::JoinError;

use crate::case::WorldCase;
use crate::checks::unnamed;
use crate::places::{Death, Site};
use check::check;
use entry::Entry;
use member::play_member;
use outcome::MemberOutcome;

/// Plays it at the sites of its members.
pub(crate) fn play_group(case: &Arc<WorldCase>, sites: &[Site]) {
    let entries = match Entry::all(case, sites) {
        Ok(entries) => entries,
        Err(e) => return expect_no_group(case, &e),
    };
    let count = entries.len();
    let deaths: Arc<[Death]> = sites.iter().take(count).map(|site| site.death.clone()).collect();
    let start = |(seat, entry): (usize, Entry)| {
        let process = seat % sites.len();
        let (case, deaths) = (Arc::clone(case), Arc::clone(&deaths));
        let device = sites[process].device.clone();
        let play = move || match entry.enter(&case, &device) {
            Ok(member) => {
                let rank = member.rank().index();
                Some((rank, play_member(&case, member, process, &deaths)))
            }
            Err(e) => {
                expect_no_group(&case, &e);
                None
            }
        };
        sites[process].run(|| thread::spawn("member", play)).expect("a thread")
    };
    let threads: Vec<_> = entries.into_iter().enumerate().map(start).collect();
    let mut members: Vec<Option<MemberOutcome>> = (0..count).map(|_| None).collect();
    for (rank, member) in threads.into_iter().filter_map(|it| it.join().expect("no panic")) {
        assert!(members[rank].replace(member).is_none(), "two members {rank}");
    }
    check(case, &members);
}

/// A member is not set up where there is no memory, or where another one has died.
fn expect_no_group(case: &WorldCase, error: &JoinError) {
    assert!(case.short_one_in > 0 || case.kill.is_some(), "no group: {error}");
    world::note(|| format!("no group: {}", unnamed(error)));
}
