use verbs_safe::{Errno, MapError};

use super::*;

fn no_mirror(bytes: usize) -> RegisterError {
    MapError::new("mapping half of a mirror", bytes, Errno::EINVAL).into()
}

/// A system that cannot map pages twice, and maps up to `most` bytes once.
fn made(shape: RingShape, most: u64) -> Result<bool, RegisterError> {
    let make = |geometry: &Geometry| match geometry.is_mirrored() {
        true => Err(no_mirror(1)),
        false if geometry.capacity() > most => Err(no_mirror(2)),
        false => Ok(()),
    };
    mirrored_or_plain(shape.geometry().unwrap(), shape, make).map(|(_, ring)| ring.is_mirrored())
}

#[test]
fn a_ring_is_plain_where_mirroring_fails_and_messages_fit() {
    let shape = RingShape::default();
    assert_eq!(made(shape, u64::MAX), Ok(false));
    assert_eq!(made(RingShape { layout: Layout::Plain, ..shape }, u64::MAX), Ok(false));
    // The error is that of the requested layout.
    assert_eq!(made(shape, 4096), Err(no_mirror(1)));
    let long = RingShape { message_bytes: shape.ring_bytes as u32 - 8, ..shape };
    assert_eq!(made(long, u64::MAX), Err(no_mirror(1)));
    let wanted = shape.geometry().unwrap();
    let refused = RegisterError::Refused { bytes: 1, errno: Errno::ENOMEM };
    let all_refused = mirrored_or_plain(wanted, shape, |_| Err::<(), _>(refused.clone()));
    assert_eq!(all_refused.unwrap_err(), refused);
    let all_made = mirrored_or_plain(wanted, shape, |_| Ok(())).unwrap();
    assert_eq!(all_made, ((), wanted));
}
