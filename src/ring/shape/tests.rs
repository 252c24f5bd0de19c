use super::*;

#[test]
fn what_cannot_be_is_named() {
    let field = |shape: RingShape| shape.geometry().unwrap_err().field;
    let ok = RingShape::default();
    ok.geometry().unwrap();
    for ring_bytes in [0, 2048, 5000, 1 << 33] {
        assert_eq!(field(RingShape { ring_bytes, ..ok }), "ring_bytes");
    }
    let most = RingShape { message_bytes: (1 << 20) - 8, ..ok };
    most.geometry().unwrap();
    assert_eq!(field(RingShape { layout: Layout::Plain, ..most }), "message_bytes");
    assert_eq!(field(RingShape { message_bytes: most.message_bytes + 1, ..ok }), "message_bytes");
}
