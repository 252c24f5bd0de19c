use super::*;

#[test]
fn a_last_look_is_repeated_a_bounded_number_of_times() {
    for torn in 0..2 * LAST_LOOKS {
        let mut looks = 0;
        let seen = last_look(|| {
            looks += 1;
            (looks > torn).then_some(looks)
        });
        assert_eq!(seen, (torn < LAST_LOOKS).then_some(torn + 1));
        assert!(looks <= LAST_LOOKS);
    }
}
