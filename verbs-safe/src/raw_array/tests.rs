use super::*;

#[test]
fn elements_are_found_by_their_address_and_others_are_not() {
    let array = RawArray::new(vec![1u64, 2, 3]);
    assert_eq!(array.index_of(array.at(2)), Some(2));
    assert_eq!(array.index_of(array.at(2).wrapping_add(1)), None);
    assert_eq!(array.index_of(array.at(1).wrapping_byte_add(1)), None);
    assert_eq!(array.index_of(std::ptr::null()), None);
}
