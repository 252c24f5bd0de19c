//! Circles of a graph: its strongly connected components of more than one node.

use std::collections::BTreeMap;

/// Uses of one node by another (the user, then the used one), with the first name by which it is
/// used.
pub(super) type Edges = BTreeMap<(usize, usize), String>;

/// Uses of groups of nodes by each other. Nodes that are in no group do not count.
pub(super) fn grouped(edges: &Edges, group: impl Fn(usize) -> Option<usize>) -> Edges {
    let mut grouped = Edges::new();
    for (&(from, to), path) in edges {
        if let (Some(from), Some(to)) = (group(from), group(to))
            && from != to
        {
            grouped.entry((from, to)).or_insert_with(|| path.clone());
        }
    }
    grouped
}

/// The circles of a graph of `nodes` nodes, each in ascending order.
pub(super) fn circles(nodes: usize, edges: &Edges) -> Vec<Vec<usize>> {
    let reached: Vec<Vec<bool>> = (0..nodes).map(|from| reachable(nodes, edges, from)).collect();
    let mut circles: Vec<Vec<usize>> = Vec::new();
    for (node, from_node) in reached.iter().enumerate() {
        if circles.iter().any(|circle| circle.contains(&node)) {
            continue;
        }
        let circle: Vec<usize> = (0..nodes).filter(|&n| from_node[n] && reached[n][node]).collect();
        if circle.len() > 1 {
            circles.push(circle);
        }
    }
    circles
}

fn reachable(nodes: usize, edges: &Edges, from: usize) -> Vec<bool> {
    let mut seen = vec![false; nodes];
    let mut open = vec![from];
    while let Some(node) = open.pop() {
        for &(_, to) in edges.range((node, 0)..(node + 1, 0)).map(|(edge, _)| edge) {
            if !std::mem::replace(&mut seen[to], true) {
                open.push(to);
            }
        }
    }
    seen
}

#[cfg(test)]
mod tests;
