use super::*;

#[test]
fn a_list_has_numbers_and_ranges_and_threads_take_turns() {
    let cpus = list("2,0-1,2").unwrap();
    assert_eq!(cpus.text(), "2,0,1");
    assert_eq!([0, 1, 2, 3].map(|n| processor_of_thread(&cpus, n)), [2, 0, 1, 2].map(Some));
    assert_eq!(ranges([0, 2, 3, 4, 7]), "0,2-4,7");
    for bad in ["", "x", "1-", "3-2", "-1", "0,,1", "99999999"] {
        assert_eq!(list(bad).unwrap_err(), RULE, "{bad}");
    }
}
