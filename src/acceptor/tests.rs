use super::*;

#[test]
fn an_address_that_is_not_reached_is_named() {
    // Nothing may be bound there without privileges, and nothing is.
    let refused = dial("127.0.0.1:1").unwrap_err();
    assert!(matches!(&refused, ConnectError::Unreached { address, .. } if address.port() == 1));
    assert!(refused.to_string().starts_with("cannot connect to 127.0.0.1:1: "), "{refused}");
    assert!(dial_timeout("127.0.0.1:1", Duration::ZERO).unwrap_err().is_timeout());
}
