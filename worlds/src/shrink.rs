//! Making a case that fails smaller.

use crate::case::{BufferKind, CaseFaults, CaseNetwork, SenderEnding, Settings, WorldCase};

/// The smallest case found that fails, beginning with one that does. `fails` plays a case.
pub fn shrink(case: &WorldCase, fails: impl Fn(&WorldCase) -> bool) -> WorldCase {
    let mut best = case.clone();
    while let Some(smaller) = candidates(&best).iter().find_map(|case| that_fails(case, &fails)) {
        best = smaller;
    }
    best
}

/// Another order of threads may be needed when steps are gone.
const ORDERS: u64 = 8;

/// The case with the first seed, of a few, by which it fails.
fn that_fails(case: &WorldCase, fails: &impl Fn(&WorldCase) -> bool) -> Option<WorldCase> {
    let seeds = case.seed..case.seed.saturating_add(ORDERS);
    seeds.map(|seed| WorldCase { seed, ..case.clone() }).find(fails)
}

/// Smaller cases, the much smaller ones first.
fn candidates(case: &WorldCase) -> Vec<WorldCase> {
    let mut all = Vec::new();
    for at in (0..case.senders.len()).filter(|_| case.senders.len() > 1) {
        let mut one = case.clone();
        one.senders.remove(at);
        one.ends.remove(at);
        all.push(one);
    }
    for at in 0..=case.senders.len() {
        let len = steps(case, at);
        for part in [len, len.div_ceil(2), len.div_ceil(4), 1] {
            for from in (0..len).step_by(part.max(1)) {
                let mut one = case.clone();
                let end = (from + part).min(len);
                match at.checked_sub(1) {
                    None => drop(one.receiver.drain(from..end)),
                    Some(sender) => drop(one.senders[sender].drain(from..end)),
                }
                all.push(one);
            }
        }
    }
    let simpler = [
        WorldCase { stall_one_in: 0, ..case.clone() },
        WorldCase { jump_one_in: 0, ..case.clone() },
        WorldCase { short_one_in: 0, ..case.clone() },
        WorldCase { short_to_the_end: false, ..case.clone() },
        WorldCase { short_posts_one_in: 0, ..case.clone() },
        WorldCase { strangers: None, ..case.clone() },
        WorldCase {
            settings: Settings { buffers: BufferKind::Own, ..case.settings },
            ..case.clone()
        },
        WorldCase { stop: None, ..case.clone() },
        WorldCase { faults: CaseFaults::default(), ..case.clone() },
        WorldCase { network: CaseNetwork::default(), ..case.clone() },
        WorldCase { network: CaseNetwork { partition_us: 0, ..case.network }, ..case.clone() },
        WorldCase { receiver_is_dropped: false, ..case.clone() },
        WorldCase { ends: vec![SenderEnding::Close; case.ends.len()], ..case.clone() },
    ];
    all.extend(simpler.into_iter().filter(|one| one != case));
    all
}

fn steps(case: &WorldCase, at: usize) -> usize {
    at.checked_sub(1).map_or(case.receiver.len(), |sender| case.senders[sender].len())
}

#[cfg(test)]
mod tests;
