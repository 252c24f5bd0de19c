use super::*;

#[test]
fn rounds_have_a_median_and_a_spread_and_stay_in_order() {
    let round = |values: [u64; 4]| {
        let mut histogram = Histogram::<u64>::new(3).unwrap();
        values.iter().for_each(|value| histogram.record(*value).unwrap());
        Quantiles::of(&histogram)
    };
    let rounds = [[3, 5, 5, 9], [1, 4, 4, 9], [2, 7, 7, 8]].map(round);
    let all = Quantiles::of_rounds(rounds.into_iter());
    assert_eq!(all.latency_ns_p50, 5);
    assert_eq!((all.latency_ns_p50_min, all.latency_ns_p50_max), (4, 7));
    assert_eq!((all.latency_ns_min, all.latency_ns_max), (1, 9));
    assert!(all.columns().is_sorted());
}
