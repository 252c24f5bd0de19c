//! Checks that a program's struct still names its object.
//!
//! The program can write to every field of a struct that it was given. The kernel finds an object by the `handle` and
//! the `context` in it, and answers `ENOENT` where they name none; so does every call here that makes, changes, asks or
//! destroys something. Calls of the data path do not look at these fields, as those of providers do not.

use rustix::io::Errno;
use verbs_sys::*;

use crate::errno;
use crate::objects::in_arc::InArc;
use crate::objects::state::{Cq, Qp, Srq};

/// The `handle` and the `context` of a program's struct.
pub(crate) type Name = (u32, *mut ibv_context);

/// Reads the name in a program's struct, which the program may write to meanwhile.
///
/// # Safety
/// `abi` points to a struct that has the two fields.
macro_rules! name_in {
    ($abi:expr) => {{
        let abi = $abi;
        ((&raw const (*abi).handle).read_volatile(), (&raw const (*abi).context).read_volatile())
    }};
}
pub(crate) use name_in;

/// Compares the name in a struct with the object's own.
pub(crate) fn check_name(shown: Name, own: Name) -> Result<(), Errno> {
    if shown == own { Ok(()) } else { Err(errno::ENOENT) }
}

macro_rules! named {
    ($($object:ident, $abi:ty, |$own:ident| $handle:expr;)*) => {$(
        impl $object {
            /// As [`from_abi`](Self::from_abi), and `ENOENT` where the struct does not name the object.
            ///
            /// # Safety
            /// As there.
            pub(crate) unsafe fn named<'a>(abi: *mut $abi) -> Result<InArc<'a, $object>, Errno> {
                // SAFETY: the caller owns the struct, which is NULL or live, and has both fields.
                let ($own, shown) = unsafe { (Self::from_abi(abi)?, name_in!(abi)) };
                check_name(shown, ($handle, $own.context.as_abi()))?;
                Ok($own)
            }
        }
    )*};
}

named! {
    Cq, ibv_cq, |cq| Cq::HANDLE;
    Qp, ibv_qp, |qp| qp.num;
    Srq, ibv_srq, |srq| srq.num;
}
