use super::*;

#[test]
fn what_went_zero_copy_is_left_out_of_a_push() {
    let piece = |offset, len| Some(Piece { offset, len });
    let both = [piece(96, 32), piece(0, 64)];
    assert_eq!(without(both, 16), [piece(112, 16), piece(0, 64)]);
    assert_eq!(without(both, 32), [piece(0, 64), None]);
    assert_eq!(without(both, 40), [piece(8, 56), None]);
    assert_eq!(without(both, 96), [None, None]);
    assert_eq!(without([piece(96, 32), None], 32), [None, None]);
}
