use super::*;

#[test]
fn a_round_goes_over_all_cases_before_the_next_one() {
    let cases = ["a", "b", "c"].map(String::from);
    let mut order = Vec::new();
    let (done, ended) = in_turn(true, &cases, 2, |at, round, _| {
        order.push((round, at));
        Ok((round, at))
    });
    assert_eq!(order, [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2)]);
    assert_eq!(done, [0, 1, 2].map(|at| vec![(0, at), (1, at)]));
    assert!(ended.is_none());
}

#[test]
fn a_case_that_fails_leaves_the_results_of_the_others() {
    let cases = ["a", "b", "c"].map(String::from);
    let (done, ended) = in_turn(true, &cases, 3, |at, round, _| match (at, round) {
        (1, 1) => Err(anyhow::anyhow!("broken")),
        _ => Ok(round),
    });
    assert_eq!(done, [vec![0, 1], vec![], vec![0]]);
    assert_eq!(ended.unwrap().to_string(), "broken");
}

#[test]
fn more_rounds_than_messages_are_refused() {
    for fine in [(None, Some(2)), (Some(5), None), (Some(5), Some(5))] {
        check(fine.0, "--messages", fine.1).unwrap();
    }
    let refused = check(Some(5), "--messages", Some(3)).unwrap_err().to_string();
    assert!(refused.ends_with("give --messages 5 or more, or --rounds 3"), "{refused}");
}

#[test]
fn rounds_share_what_one_run_has() {
    for (whole, asked) in [(1, 3), (2, 3), (3, 3), (20_000, 3), (20_001, 7), (5, 1)] {
        let rounds = rounds_of(whole, asked);
        let shares: Vec<u64> = (0..rounds).map(|round| share(whole, round, rounds)).collect();
        assert_eq!(shares.iter().sum::<u64>(), whole);
        assert!(shares.iter().all(|share| *share > 0), "{shares:?}");
    }
}
