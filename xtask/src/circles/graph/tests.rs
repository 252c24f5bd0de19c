use super::*;

#[test]
fn a_circle_is_found_and_a_chain_is_none() {
    let edges = |all: &[(usize, usize)]| -> Edges {
        all.iter().map(|edge| (*edge, String::new())).collect()
    };
    assert_eq!(circles(3, &edges(&[(0, 1), (1, 2), (0, 2)])), Vec::<Vec<usize>>::new());
    assert_eq!(circles(4, &edges(&[(0, 1), (1, 2), (2, 0), (2, 3)])), [[0, 1, 2]]);
    assert_eq!(circles(4, &edges(&[(0, 1), (1, 0), (2, 3), (3, 2)])), [[0, 1], [2, 3]]);
}
