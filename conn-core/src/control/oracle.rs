//! A naive model of [`Control::decode`], and what must hold for every immediate.

use super::*;

/// Decodes `immediate` with the machine and by the table of the module's docs, and
/// panics when they differ or when encoding does not give the immediate back.
pub fn check(immediate: u32) {
    let expected = match (immediate >> 31, immediate % (1 << 31)) {
        (0, low) => Ok(Control::Credit(CreditWire::of_position(low.into()))),
        (_, 1) => Ok(Control::Fin),
        (_, 2) => Ok(Control::Stop),
        _ => Err(UnknownControl(immediate)),
    };
    let decoded = Control::decode(immediate);
    assert_eq!(decoded, expected);
    if let Ok(control) = decoded {
        assert_eq!(control.encode(), immediate, "two immediates for one message");
    }
}
