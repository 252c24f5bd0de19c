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

#[test]
fn groups_use_each_other_where_their_nodes_do() {
    let edges: Edges = [(0, 2), (1, 0), (3, 1), (4, 0)].map(|edge| (edge, String::new())).into();
    // 0 and 1 are one group, 2 and 3 another one, and 4 is in none.
    let found = grouped(&edges, |node| (node < 4).then_some(node / 2 * 2));
    assert_eq!(found.into_keys().collect::<Vec<_>>(), [(0, 2), (2, 0)]);
}
