use super::*;

fn round(turns: &mut Turns) -> Vec<u32> {
    std::iter::from_fn(|| turns.next()).collect()
}

#[test]
fn all_have_their_turn_in_each_round() {
    let mut turns = Turns::new(8);
    (0..3).for_each(|place| turns.add(place));
    assert_eq!(round(&mut turns), [0, 1, 2]);
    assert_eq!(turns.next(), Some(0));
    turns.remove(0);
    assert_eq!(round(&mut turns), [1, 2]);
    turns.add(0);
    assert_eq!(round(&mut turns), [1, 2, 0]);
}

#[test]
fn who_rests_is_woken() {
    let mut turns = Turns::new(64);
    (0..3).for_each(|place| turns.add(place));
    turns.rest(1, 6);
    assert_eq!(round(&mut turns), [0, 2]);
    turns.wake_all();
    assert_eq!(round(&mut turns), [0, 2, 1]);
    assert_eq!(round(&mut turns), [0, 2, 1]);
}

#[test]
fn who_has_nothing_rests_for_longer_and_longer_up_to_a_limit() {
    let mut turns = Turns::new(8);
    (0..2).for_each(|place| turns.add(place));
    let mut looks = Vec::new();
    let mut vain = 0;
    for number in 0..100 {
        while let Some(place) = turns.next() {
            if place == 1 {
                vain += 1;
                looks.push(number);
                turns.rest(1, vain);
            }
        }
    }
    let gaps: Vec<i32> = looks.windows(2).map(|w| w[1] - w[0] - 1).collect();
    assert_eq!(gaps[..4], [2, 4, 8, 8]);
    assert!(gaps.iter().all(|gap| *gap <= 8), "{gaps:?}");
}

#[test]
fn a_lone_place_never_rests_nor_does_any_with_a_limit_of_0() {
    let mut turns = Turns::new(8);
    turns.add(5);
    for vain in 0..100 {
        turns.rest(5, vain);
        assert_eq!(round(&mut turns), [5]);
    }
    let mut turns = Turns::new(0);
    (0..2).for_each(|place| turns.add(place));
    turns.rest(0, 9);
    assert_eq!(round(&mut turns), [0, 1]);
}

#[test]
fn all_may_rest_and_come_back() {
    let mut turns = Turns::new(4);
    (0..3).for_each(|place| turns.add(place));
    (0..3).for_each(|place| turns.rest(place, 9));
    let seen: Vec<Vec<u32>> = (0..7).map(|_| round(&mut turns)).collect();
    assert_eq!(seen.iter().map(Vec::len).sum::<usize>(), 6, "{seen:?}");
    turns.remove(0);
    turns.remove(1);
    turns.rest(2, 9);
    assert_eq!(round(&mut turns), [2]);
}
