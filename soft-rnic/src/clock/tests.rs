use super::*;

#[test]
fn times_of_day_keep_the_order_of_times() {
    let then = now();
    let all: Vec<u64> = (0..1000).map(|n| wall_time(then + n)).collect();
    assert!(all.is_sorted(), "{all:?}");
}
