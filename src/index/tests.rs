use std::collections::BTreeMap;

use super::*;

#[test]
fn finds_what_was_inserted_and_nothing_else() {
    let mut index = QpIndex::default();
    assert_eq!(index.find(0), None);
    // Multiples of a large power of two all want the same place.
    let numbers: Vec<u32> = (0..200).map(|i| i * 4096 + i % 3).collect();
    for (link, number) in numbers.iter().enumerate() {
        index.insert(*number, link as u32);
    }
    for (link, number) in numbers.iter().enumerate() {
        assert_eq!(index.find(*number), Some(link as u32));
    }
    assert_eq!(index.find(5), None);
    assert_eq!(index.find(u32::MAX), None);
}

#[test]
fn what_was_removed_is_gone_and_nothing_else() {
    let (mut index, mut model) = (QpIndex::default(), BTreeMap::new());
    // Few places wanted by many: long runs, and holes in the middle of them.
    let number = |i: u32| i % 61 * 1024 + i % 3;
    for i in 0..20_000u32 {
        let qp_num = number(i.wrapping_mul(i) ^ i >> 3);
        match model.remove(&qp_num) {
            Some(_) => index.remove(qp_num),
            None => {
                index.insert(qp_num, i);
                model.insert(qp_num, i);
            }
        }
        index.remove(7);
        let probe = number(i);
        assert_eq!(index.find(probe), model.get(&probe).copied(), "{probe} after {i}");
    }
    assert!(model.iter().all(|(number, link)| index.find(*number) == Some(*link)));
    assert!(index.slots.len() <= 512, "a table that grows without bound");
}
