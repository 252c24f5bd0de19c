use super::*;
use host::random::Random;

const ALL: usize = 1 << (2 * HALF_BITS);
fn drawn(random: &mut Random) -> Keys {
    Keys(core::array::from_fn(|_| random.next_u64()))
}

#[test]
fn the_permutation_is_one() {
    let keys = drawn(&mut Random::new(1));
    let mut seen = vec![false; ALL];
    for plain in 0..ALL as u32 {
        let permuted = keys.permute(plain);
        assert!(!core::mem::replace(&mut seen[permuted as usize], true), "{plain:#x}");
        assert_eq!(invert(permuted, |i| keys.0[i]), plain);
    }
}

#[test]
fn a_key_leads_to_its_slot_whatever_its_tag_is() {
    let mut random = Random::new(2);
    for _ in 0..100 {
        let keys = drawn(&mut random);
        let published = PublishedKeys(core::array::from_fn(|_| AtomicU64::new(0)));
        published.publish(&keys);
        for _ in 0..1_000 {
            let index = random.below(limits::MAX_KEYS as u64) as u32;
            let key = keys.key(index, random.next_u64() as u32);
            for tag in [0, 1, key & TAG, TAG] {
                let key = key & !TAG | tag;
                assert_eq!((keys.index(key), published.index(key)), (index, index));
            }
        }
    }
}

#[test]
fn a_key_that_others_have_displaced_is_found_all_the_same() {
    let cache = KeyCache::default();
    let keys: Vec<u32> = (0..4 * ENTRIES as u32).map(|index| cache.key(index, 1)).collect();
    let displaced = keys.iter().enumerate().filter(|(index, key)| {
        let known = cache.entry(**key).load(Ordering::Relaxed);
        assert_eq!(cache.index(**key), *index as u32);
        known != u64::from(**key) << 32 | *index as u64
    });
    assert!(displaced.count() >= 3 * ENTRIES, "there are as many entries");
    assert_eq!(cache.index(keys[1] ^ 1), 1, "another tag");
}

#[test]
fn a_slot_has_another_key_for_as_long_as_is_promised() {
    let keys = Keys::of_process();
    for index in [0, 1, limits::MAX_KEYS as u32 - 1] {
        let of = |generation| keys.key(index, generation);
        let whole: std::collections::HashSet<u32> = (0..1 << 14).map(of).collect();
        assert_eq!(whole.len(), 1 << 14);
        let parts: std::collections::HashSet<u32> = (0..64).map(|g| of(g) >> TAG_BITS).collect();
        assert_eq!(parts.len(), 64);
    }
}

/// Pairs of neighbours, and two keys of a slot, tell nothing by what they have in common: each
/// difference of them occurs about as often as by chance.
#[test]
fn neighbours_do_not_tell_each_other() {
    let mut random = Random::new(3);
    for (step, name) in [((1, 0), "slots"), ((0, 1), "generations")] {
        let mut differences = std::collections::HashMap::new();
        let mut equal_bits = 0;
        for _ in 0..1 << 14 {
            let keys = drawn(&mut random);
            let (index, generation) = (random.below(1 << 17) as u32, random.below(63) as u32);
            let (a, b) =
                (keys.key(index, generation), keys.key(index + step.0, generation + step.1));
            *differences.entry((a ^ b) >> TAG_BITS).or_insert(0_u32) += 1;
            equal_bits += (!(a ^ b)).count_ones();
        }
        // Of 2^14 draws of 2^24, none occurs more than a few times.
        let most = differences.values().max().copied().unwrap_or_default();
        assert!(most <= 4, "{name}: a difference occurs {most} times");
        let share = f64::from(equal_bits) / f64::from(32 << 14);
        assert!((0.49..0.51).contains(&share), "{name}: {share} of the bits are equal");
    }
}

/// Nor do the tags of some keys of a process tell those of others: no difference of neighbours,
/// in slots, in generations or in rounds of them, occurs much more often than by chance.
#[test]
fn tags_do_not_tell_each_other() {
    let keys = Keys::of_process();
    for (slots, generations) in [(1, 0), (0, 1), (0, 1 << GENERATION_BITS)] {
        let mut counts = [[0_u32; 1 << TAG_BITS]; 2];
        for i in 0..1 << 12 {
            let (index, generation) = (i % 97, i / 97 * 64 + i % 64);
            let tag = |index, generation| keys.key(index, generation) & TAG;
            let a = tag(index, generation);
            let b = tag(index + slots, generation + generations);
            counts[0][(a ^ b) as usize] += 1;
            counts[1][(b.wrapping_sub(a) & TAG) as usize] += 1;
        }
        // 16 on average.
        let most = counts.iter().flatten().max();
        assert!(most.is_some_and(|most| *most < 48), "{slots} {generations}: {most:?}");
    }
}

/// Nor does the difference of a pair tell that of another one: in either half there are as
/// many as 4,096 draws of 4,096 give, 2,589 on average.
#[test]
fn pairs_of_neighbours_do_not_tell_of_other_pairs() {
    let mut random = Random::new(4);
    for (fixed, varies) in [(HALF_BITS, 0), (0, HALF_BITS)] {
        let keys = drawn(&mut random);
        let at = random.below(u64::from(HALF)) as u32;
        let mut seen = [const { std::collections::BTreeSet::new() }; 2];
        for other in 0..=HALF {
            let of = |at: u32| keys.permute(at << fixed | other << varies);
            let difference = of(at) ^ of(at + 1);
            seen[0].insert(difference >> HALF_BITS);
            seen[1].insert(difference & HALF);
        }
        let counts = seen.map(|seen| seen.len());
        assert!(counts.iter().all(|n| (2_450..2_750).contains(n)), "{counts:?}");
    }
}
