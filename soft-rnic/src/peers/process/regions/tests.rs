use super::*;

/// Its index is that part of its key.
fn region(key: u32, version: u32) -> PeerRegion<Weak<MappedWindow>> {
    PeerRegion {
        key,
        index: index(key),
        published: PublishedRegion { version, ..PublishedRegion::default() },
        window: None,
    }
}

fn index(key: u32) -> u32 {
    key & 0x3_ffff
}

#[test]
fn regions_in_turn_are_all_known_up_to_the_limit() {
    let mut regions = KnownRegions::default();
    assert!(regions.get(index(0), 0, 0).is_none());
    let most = KnownRegions::MOST as u32;
    // As keys are: an index below a part that varies.
    let keys: Vec<u32> = (0..most).map(|index| index | (index * 7919) << 18).collect();
    keys.iter().for_each(|key| regions.put(region(*key, 1), |_| true));
    assert!(keys.iter().all(|key| regions.get(index(*key), *key, 1).is_some()));
    assert!(
        keys.iter().all(|key| regions.get(index(*key), *key, 2).is_none()),
        "another registration"
    );
    regions.put(region(keys[0] + most, 1), |_| true);
    assert!(regions.get(index(keys[0]), keys[0], 1).is_none(), "it has given its slot");
    assert!(keys[1..].iter().all(|key| regions.get(index(*key), *key, 1).is_some()));
    assert_eq!(regions.0.len(), KnownRegions::MOST);
}

#[test]
fn what_is_registered_anew_takes_no_more_places() {
    let mut regions = KnownRegions::default();
    for key in 0..1000 {
        regions.put(region(key, 1), |_| false);
        assert!(regions.get(index(key), key, 1).is_some());
    }
    regions.put(region(999, 2), |_| true);
    assert!(regions.get(index(999), 999, 1).is_none() && regions.get(index(999), 999, 2).is_some());
    assert_eq!(regions.0.len(), KnownRegions::FIRST);
}
