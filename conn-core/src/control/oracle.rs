//! A naive model of [`Control::decode`], and the properties of every immediate.

use super::*;

/// Decodes `immediate` with the machine and by the table of the module's docs, and
/// panics when they differ or when encoding does not give the immediate back.
pub fn check(immediate: u32) {
    let low = u64::from(immediate % (1 << 28));
    let expected = match (immediate >> 28, immediate % (1 << 31)) {
        (0..8, credit) => Ok(Control::Credit(CreditWire::of_position(credit.into()))),
        (10, _) => Ok(Control::Loan(LoanWire::of_position(low))),
        (11, _) => Ok(Control::Return(LoanWire::of_position(low))),
        (12.., taken) => Ok(Control::Stop(Taken::of_count(taken.into()))),
        (8, 1) => Ok(Control::Fin),
        (8, 3) => Ok(Control::Want),
        (8, 4) => Ok(Control::Recall),
        _ => Err(UnknownControl(immediate)),
    };
    let decoded = Control::decode(immediate);
    assert_eq!(decoded, expected);
    if let Ok(control) = decoded {
        assert_eq!(control.encode(), immediate, "two immediates for one message");
    }
}
