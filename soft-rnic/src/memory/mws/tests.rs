use super::*;

#[test]
fn a_window_is_free_when_its_last_ending_is_settled() {
    let mut mws = Mws::default();
    let binding = Binding { key: 1, region: 2, qpn: 3, peer: 4 };
    for index in [7, 8] {
        mws.add(index, 1, true);
        mws.bind(index, binding);
    }
    assert!(mws.are_bound_to(2) && !mws.are_bound_to(1) && !mws.are_bound_to(3));
    assert_eq!((mws.any_of_qp(3), mws.any_of_qp(2)), (Some(7), None));
    assert!(!mws.remove(7), "it is bound");
    assert_eq!((mws.end(7), mws.end(7)), (Some(binding), None));
    assert!(mws.end(8).is_some() && !mws.are_bound_to(2));
    let [first, other] = [7, 8].map(|index| mws.ending(index).unwrap());
    assert_eq!((first.pd, first.qpn, first.peer), (1, 3, 4));
    assert!(!mws.remove(7), "it is not settled");
    mws.settle(&first);
    assert!(mws.is_settled(&first) && !mws.is_settled(&other));
    mws.bind(7, binding);
    assert!(mws.end(7).is_some());
    // What is over later than the next ending settles nothing of that.
    mws.settle(&first);
    let last = mws.ending(7).unwrap();
    assert!(last != first && !mws.is_settled(&last));
    mws.settle(&last);
    assert!(mws.remove(7) && !mws.remove(7) && mws.is_settled(&last));
}
