use super::*;

#[test]
fn names_are_of_one_case_each() {
    let mut all = names();
    all.sort_unstable();
    all.dedup();
    assert_eq!(all.len(), CASES.len());
}

#[test]
fn cases_are_chosen_by_name_and_size() {
    let choose = |names: &[&str], sizes: &[u32]| {
        let names: Vec<String> = names.iter().map(|n| (*n).to_owned()).collect();
        chosen(&names, sizes)
            .map(|all| all.iter().map(|c| (c.case.name, c.size)).collect::<Vec<_>>())
    };
    let found = choose(&["send-bw", "send-bw-inline"], SIZES).unwrap();
    assert_eq!(found.len(), SIZES.len() + 2, "{found:?}");
    let at_16 = CASES.iter().filter(|case| case.has_size(16)).count();
    assert_eq!(choose(&[], &[16]).unwrap().len(), at_16);
    assert!(choose(&["buffered-read-long"], &[16]).is_err());
    assert!(choose(&["send"], SIZES).unwrap_err().to_string().contains("send-bw-list"));
    assert!(choose(&["send-bw-inline"], &[8192]).is_err());
    assert!(choose(&["send-lat-ud"], &[8192]).is_err());
}

#[test]
fn every_message_of_a_list_is_posted_and_the_last_one_signalled() {
    let all = chosen(&[], SIZES).unwrap().into_iter();
    for comparison in all.flat_map(|c| [c, Comparison { quick: true, ..c }]) {
        let case = comparison.case;
        assert_eq!(comparison.messages() % case.list, 0, "{comparison:?}");
        assert_eq!(case.signal_every() % case.list, 0, "{comparison:?}");
        assert_eq!(comparison.messages() % case.signal_every(), 0, "{comparison:?}");
    }
}
