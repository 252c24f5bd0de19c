//! Naive models of the parts of the loan scheme, each with the others lying, and all parts
//! together with the wires between them.

mod bank;
mod ends;
mod pool;

pub use bank::{Bank, BankOp};
pub use ends::{BorrowerOp, CheckedBorrower, CheckedLoanGrantor, LoanGrantorOp};
pub use pool::{CheckedLender, LenderOp};
