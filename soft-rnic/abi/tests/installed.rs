//! Functions that need no device give the same as in rdma-core's library, where that is installed.
//!
//! Only on soft0: it is about the symbols in front of soft0.

mod common;

use core::ffi::{CStr, c_char, c_int};

use libloading::os::unix::Library;

/// Both libraries.
fn both() -> Option<[Library; 2]> {
    let paths = [common::library().to_owned(), common::installed()?];
    // SAFETY: neither library has initialisers with preconditions.
    Some(paths.map(|path| unsafe { Library::new(path) }.unwrap()))
}

#[test]
fn texts_are_the_same() {
    type Text = unsafe extern "C" fn(c_int) -> *const c_char;
    let Some(both) = both() else { return };
    for name in
        ["ibv_node_type_str", "ibv_port_state_str", "ibv_event_type_str", "ibv_wc_status_str"]
    {
        for value in -3..40 {
            let [ours, theirs] = both.each_ref().map(|library| {
                // SAFETY: the symbol has this type, and its texts are constants.
                unsafe { CStr::from_ptr(library.get::<Text>(name).unwrap()(value)) }
            });
            assert_eq!(ours, theirs, "{name}({value})");
        }
    }
}

#[test]
fn rates_are_the_same() {
    type Rate = unsafe extern "C" fn(c_int) -> c_int;
    let Some(both) = both() else { return };
    let functions =
        ["ibv_rate_to_mult", "ibv_rate_to_mbps", "mult_to_ibv_rate", "mbps_to_ibv_rate"];
    for name in functions {
        // SAFETY: the symbol has this type.
        let [ours, theirs] = both.each_ref().map(|l| unsafe { l.get::<Rate>(name).unwrap() });
        for value in -3..1_300_000 {
            // SAFETY: a pure function.
            let results = unsafe { (ours(value), theirs(value)) };
            assert_eq!(results.0, results.1, "{name}({value})");
        }
    }
}

/// Every byte that the kernel's structs have is copied to where rdma-core has it, and nothing else
/// is written.
#[test]
fn copies_of_the_kernels_structs_are_the_same() {
    type Copy = unsafe extern "C" fn(*mut u8, *const u8);
    #[repr(align(8))]
    struct Bytes([u8; 256]);
    let Some(both) = both() else { return };
    let functions = [
        "ibv_copy_ah_attr_from_kern",
        "ibv_copy_qp_attr_from_kern",
        "ibv_copy_path_rec_from_kern",
        "ibv_copy_path_rec_to_kern",
    ];
    for name in functions {
        for seed in 0..=255_u8 {
            let from = Bytes(core::array::from_fn(|i| (i as u8).wrapping_mul(31) ^ seed));
            let [ours, theirs] = both.each_ref().map(|library| {
                let mut to = Bytes([0; 256]);
                // SAFETY: the symbol has this type; both structs are shorter than this.
                unsafe { library.get::<Copy>(name).unwrap()(to.0.as_mut_ptr(), from.0.as_ptr()) };
                to.0
            });
            assert_eq!(ours, theirs, "{name}, {seed}");
        }
    }
}
