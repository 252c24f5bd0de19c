use rdma_conn::verbs_safe::{Mapping, RemoteAccess, SharedRegionConfig};

use super::*;

fn region() -> SharedRegion {
    let device = rdma_conn::device::soft().unwrap();
    let config = SharedRegionConfig { access: RemoteAccess::ALL, on_demand: false };
    device.pd().register_shared(Mapping::new(4096).unwrap(), config).unwrap()
}

#[test]
fn a_message_is_there_when_both_its_bytes_are() {
    let region = region();
    for size in [1, 2, 7, 8, 9, 64, 100] {
        let at = 128;
        assert_eq!(arrived(&region, at, size).unwrap(), None);
        if size > 1 {
            region.copy_in(at, &[7]).unwrap();
            assert_eq!(arrived(&region, at, size).unwrap(), None, "the first one alone");
            reset(&region, at, size).unwrap();
            region.copy_in(at + size - 1, &[7]).unwrap();
            assert_eq!(arrived(&region, at, size).unwrap(), None, "the last one alone");
            region.copy_in(at, &[6]).unwrap();
            assert_eq!(arrived(&region, at, size).unwrap(), None, "parts of two messages");
        }
        region.copy_in(at, &[7]).unwrap();
        region.copy_in(at + size - 1, &[7]).unwrap();
        assert_eq!(arrived(&region, at, size).unwrap(), Some(7));
        reset(&region, at, size).unwrap();
        assert_eq!(arrived(&region, at, size).unwrap(), None);
    }
}

#[test]
fn a_mark_is_never_nothing() {
    assert!((0..1000).all(|number| mark(number) != 0 && mark(number) != mark(number + 1)));
}

#[test]
fn what_was_wrapped_is_found_between_the_marks() {
    for size in 0..5 {
        let mut message = vec![0; size];
        wrap(&mut message, 9, |body| body.fill(1));
        assert_eq!(body(&message).len(), size.saturating_sub(2));
        assert_eq!(
            (message.first(), message.last()),
            ((size > 0).then_some(&9), (size > 0).then_some(&9))
        );
    }
}
