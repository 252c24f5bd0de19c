use super::*;

#[test]
fn the_checksum_is_that_of_the_rfc() {
    // The example of RFC 1071, section 3: the sum is ddf2.
    let bytes = [0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7];
    assert_eq!(internet_checksum(&bytes), !0xddf2);
}
