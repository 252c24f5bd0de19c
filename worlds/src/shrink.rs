//! Making a case that fails smaller.

use crate::case::{Case, End, Faults, Network};

/// The smallest case found that fails, beginning with one that does. `fails` plays a case.
pub fn shrink(case: &Case, fails: impl Fn(&Case) -> bool) -> Case {
    let mut best = case.clone();
    while let Some(smaller) = candidates(&best).iter().find_map(|case| that_fails(case, &fails)) {
        best = smaller;
    }
    best
}

/// Another order of threads may be needed when steps are gone.
const ORDERS: u64 = 8;

/// The case with the first seed, of a few, by which it fails.
fn that_fails(case: &Case, fails: &impl Fn(&Case) -> bool) -> Option<Case> {
    let seeds = case.seed..case.seed.saturating_add(ORDERS);
    seeds.map(|seed| Case { seed, ..case.clone() }).find(fails)
}

/// Smaller cases, the much smaller ones first.
fn candidates(case: &Case) -> Vec<Case> {
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
        Case { stall_one_in: 0, ..case.clone() },
        Case { jump_one_in: 0, ..case.clone() },
        Case { short_one_in: 0, ..case.clone() },
        Case { short_posts_one_in: 0, ..case.clone() },
        Case { strangers: None, ..case.clone() },
        Case { stop: None, ..case.clone() },
        Case { faults: Faults::default(), ..case.clone() },
        Case { network: Network::default(), ..case.clone() },
        Case { network: Network { partition_us: 0, ..case.network }, ..case.clone() },
        Case { receiver_is_dropped: false, ..case.clone() },
        Case { ends: vec![End::Close; case.ends.len()], ..case.clone() },
    ];
    all.extend(simpler.into_iter().filter(|one| one != case));
    all
}

fn steps(case: &Case, at: usize) -> usize {
    at.checked_sub(1).map_or(case.receiver.len(), |sender| case.senders[sender].len())
}

#[cfg(test)]
mod tests;
