use super::*;

#[test]
fn the_abi_struct_is_followed_by_zeroes() {
    assert_eq!(core::mem::offset_of!(Device, abi), 0);
    let device = default_device();
    assert_eq!(core::mem::offset_of!(Device, slack), size_of::<ibv_device>());
    assert_eq!(device.slack, [0; 8]);
}

#[test]
fn numbers_wrap_around_and_skip_the_special_ones() {
    assert_eq!(QpTable::after(INDEX_MASK), FIRST_QPN);
    assert_eq!(QpTable::after(FIRST_QPN), FIRST_QPN + 1);
}
