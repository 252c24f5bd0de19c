//! Checks that a program's struct still names its object.
//!
//! The program can write to every field of a struct that it was given. The kernel finds an object by the `handle` and
//! the `context` in it, and answers `ENOENT` where they name none; so does every call here that makes, changes, asks or
//! destroys something. Calls of the data path do not look at these fields, as those of providers do not.

use rustix::io::Errno;
use verbs_sys::*;

use crate::errno;
use crate::objects::ah::Ah;
use crate::objects::in_arc::InArc;
use crate::objects::mr::Mr;
use crate::objects::mw::Mw;
use crate::objects::state::{Cq, Pd, Qp, Srq};

/// The `handle` and the `context` of a program's struct.
type Name = (u32, *mut ibv_context);

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

/// Compares the name in a struct with the object's own.
fn check_name(shown: Name, own: Name) -> Result<(), Errno> {
    if shown == own { Ok(()) } else { Err(errno::ENOENT) }
}

/// Gives each type a function `named`, which finds the object by the function `$find`, and compares the struct with its
/// own handle and context.
macro_rules! named {
    ($($object:ident, $find:ident($abi:ty) -> $found:ty, |$own:ident| $handle:expr, $context:expr;)*) => {$(
        impl $object {
            /// The object behind a caller's pointer; `ENOENT` where the struct does not name it.
            ///
            /// # Safety
            /// `abi` is NULL or a struct of ours that the caller has not given back.
            pub(crate) unsafe fn named<'a>(abi: *mut $abi) -> Result<$found, Errno> {
                // SAFETY: the caller owns the struct, which is NULL or live, and has both fields.
                let ($own, shown) = unsafe { (Self::$find(abi)?, name_in!(abi)) };
                check_name(shown, ($handle, $context.as_abi()))?;
                Ok($own)
            }
        }
    )*};
}

named! {
    Ah, from_abi(ibv_ah) -> &'a Ah, |ah| Ah::HANDLE, ah.pd.context;
    Cq, from_abi(ibv_cq) -> InArc<'a, Cq>, |cq| Cq::HANDLE, cq.context;
    Mr, from_abi(ibv_mr) -> &'a Mr, |mr| mr.registration.key, mr.pd.context;
    Mw, from_abi(ibv_mw) -> &'a Mw, |mw| mw.index, mw.pd.context;
    Pd, of_struct(ibv_pd) -> InArc<'a, Pd>, |pd| pd.id, pd.context;
    Qp, from_abi(ibv_qp) -> InArc<'a, Qp>, |qp| qp.num, qp.context;
    Srq, from_abi(ibv_srq) -> InArc<'a, Srq>, |srq| srq.num, srq.context;
}
