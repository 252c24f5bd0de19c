//! A program that opens the library at run time finds the device, and symbols by version.
//!
//! Only on soft0: it is about the symbols in front of soft0.

mod common;

use core::ffi::{CStr, c_char, c_int, c_void};
use std::ffi::CString;

use libloading::os::unix::Library;
use verbs_sys::*;

/// The library, as a program's that calls `dlopen`.
fn open() -> Library {
    // SAFETY: the library has no initialisers with preconditions.
    unsafe { Library::new(common::library()) }.unwrap()
}

type GetDeviceList = unsafe extern "C" fn(*mut c_int) -> *mut *mut ibv_device;
type FreeDeviceList = unsafe extern "C" fn(*mut *mut ibv_device);
type OpenDevice = unsafe extern "C" fn(*mut ibv_device) -> *mut ibv_context;
type CloseDevice = unsafe extern "C" fn(*mut ibv_context) -> c_int;

/// The context of the first device, which is soft0.
fn context(library: &Library) -> *mut ibv_context {
    // SAFETY: the symbols have these types; the list is freed after its last use.
    unsafe {
        let list = library.get::<GetDeviceList>("ibv_get_device_list").unwrap();
        let free = library.get::<FreeDeviceList>("ibv_free_device_list").unwrap();
        let open = library.get::<OpenDevice>("ibv_open_device").unwrap();
        let mut n = 0;
        let devices = list(&mut n);
        assert_eq!(n, 1);
        assert_eq!(CStr::from_ptr((&raw const (**devices).name).cast()), c"soft0");
        let context = open(*devices);
        free(devices);
        assert!(!context.is_null());
        context
    }
}

#[test]
fn a_symbol_is_found_by_its_version_only() {
    let library = open();
    let handle = library.into_raw();
    let find = |name: &CStr, version: &CStr| {
        // SAFETY: strings that end with zero, and a library that stays open.
        unsafe { libc::dlvsym(handle, name.as_ptr(), version.as_ptr()) }
    };
    assert!(!find(c"ibv_open_device", c"IBVERBS_1.1").is_null());
    assert!(!find(c"ibv_reg_mr_iova2", c"IBVERBS_1.8").is_null());
    assert!(!find(c"verbs_register_driver_34", c"IBVERBS_PRIVATE_34").is_null());
    assert!(find(c"ibv_open_device", c"IBVERBS_1.8").is_null());
}

#[test]
fn the_exported_query_of_a_port_writes_48_bytes() {
    type QueryPort = unsafe extern "C" fn(*mut ibv_context, u8, *mut c_void) -> c_int;
    let library = open();
    let context = context(&library);
    let mut attr = [0xa5_u8; 64];
    // SAFETY: the symbols have these types, and there is room for more than a port's attributes.
    unsafe {
        let query = library.get::<QueryPort>("ibv_query_port").unwrap();
        assert_eq!(query(context, 1, attr.as_mut_ptr().cast()), 0);
    }
    assert_eq!(attr[0], ibv_port_state::IBV_PORT_ACTIVE.0 as u8);
    assert_eq!(attr[48..], [0xa5; 16]);
}

/// It stays until the process ends, as the kernel keeps what a card's process has left.
#[test]
fn a_device_closes_with_what_was_left_on_it() {
    type AllocPd = unsafe extern "C" fn(*mut ibv_context) -> *mut ibv_pd;
    let library = open();
    let context = context(&library);
    // SAFETY: the symbols have these types, and the context is not used afterwards.
    unsafe {
        assert!(!library.get::<AllocPd>("ibv_alloc_pd").unwrap()(context).is_null());
        assert_eq!(library.get::<CloseDevice>("ibv_close_device").unwrap()(context), 0);
    }
}

/// perftest asks for such bits of every device.
#[test]
fn optional_access_bits_are_ignored() {
    type AllocPd = unsafe extern "C" fn(*mut ibv_context) -> *mut ibv_pd;
    type RegMr = unsafe extern "C" fn(*mut ibv_pd, *mut c_void, usize, u64, u32) -> *mut ibv_mr;
    type DeregMr = unsafe extern "C" fn(*mut ibv_mr) -> c_int;
    let library = open();
    let context = context(&library);
    let mut memory = [0_u8; 64];
    // SAFETY: the symbols have these types; the memory outlives its registration.
    unsafe {
        let pd = library.get::<AllocPd>("ibv_alloc_pd").unwrap()(context);
        let register = library.get::<RegMr>("ibv_reg_mr_iova2").unwrap();
        let at = memory.as_mut_ptr().cast::<c_void>();
        let mr = register(pd, at, 64, at as u64, ACCESS_OPTIONAL_RANGE | 1);
        assert!(!mr.is_null());
        assert_eq!(library.get::<DeregMr>("ibv_dereg_mr").unwrap()(mr), 0);
    }
}

/// Programs call them by functions of the headers, through the context.
#[test]
fn memory_windows_of_both_types_are_made() {
    type AllocPd = unsafe extern "C" fn(*mut ibv_context) -> *mut ibv_pd;
    let library = open();
    let context = context(&library);
    // SAFETY: the symbol has this type; each window is freed once.
    unsafe {
        let pd = library.get::<AllocPd>("ibv_alloc_pd").unwrap()(context);
        for kind in [ibv_mw_type::IBV_MW_TYPE_1, ibv_mw_type::IBV_MW_TYPE_2] {
            let mw = ibv_alloc_mw(pd, kind);
            assert!(!mw.is_null());
            assert_eq!(((*mw).type_, (*mw).pd, (*mw).context), (kind, pd, context));
            assert_eq!(ibv_dealloc_mw(mw), 0);
        }
    }
}

#[test]
fn the_table_of_gids_is_bounded_by_what_the_caller_has() {
    type Table =
        unsafe extern "C" fn(*mut ibv_context, *mut ibv_gid_entry, usize, u32, usize) -> isize;
    let library = open();
    let context = context(&library);
    let mut entries = [ibv_gid_entry::default(); 2];
    // SAFETY: the symbol has this type, and there is room for two entries.
    unsafe {
        let query = library.get::<Table>("_ibv_query_gid_table").unwrap();
        let size = size_of::<ibv_gid_entry>();
        assert_eq!(query(context, entries.as_mut_ptr(), 2, 0, size), 1);
        assert_eq!(entries[0].gid_type, ibv_gid_type::IBV_GID_TYPE_ROCE_V2.0);
        assert_eq!(entries[0].port_num, 1);
        assert_eq!(query(context, entries.as_mut_ptr(), 0, 0, size), -(libc::EINVAL as isize));
        assert_eq!(query(context, entries.as_mut_ptr(), 2, 0, size - 1), -(libc::EINVAL as isize));
    }
}

/// 0 would make callers spin, or use what they did not get.
#[test]
fn what_is_not_offered_says_so() {
    type Code = unsafe extern "C" fn(*mut c_void, *mut c_void, u16) -> c_int;
    type Object = unsafe extern "C" fn(*mut c_void, u32) -> *mut c_void;
    let library = open();
    let null = core::ptr::null_mut;
    let errno = || std::io::Error::last_os_error().raw_os_error();
    // SAFETY: the functions look at none of their arguments.
    unsafe {
        // The functions of providers: those of programs are forwarded.
        let attach = library.get::<Code>("ibv_cmd_attach_mcast").unwrap();
        assert_eq!(attach(null(), null(), 0), libc::EOPNOTSUPP);
        // Whatever the vendor is: 0 as well.
        let ece = library.get::<Code>("ibv_set_ece").unwrap();
        assert_eq!(ece(null(), [0_u32; 3].as_mut_ptr().cast(), 0), libc::EOPNOTSUPP);
        let ece = library.get::<Code>("ibv_query_ece").unwrap();
        assert_eq!(ece(null(), [0_u32; 3].as_mut_ptr().cast(), 0), libc::EOPNOTSUPP);
        let poll = library.get::<Code>("ibv_cmd_poll_cq").unwrap();
        assert_eq!((poll(null(), null(), 0), errno()), (-1, Some(libc::EOPNOTSUPP)));
        let register = library.get::<Object>("ibv_reg_dmabuf_mr").unwrap();
        *libc::__errno_location() = 0;
        assert!(register(null(), 0).is_null());
        assert_eq!(errno(), Some(libc::EOPNOTSUPP));
    }
}

/// Commands to the kernel, of which programs know nothing.
#[test]
fn every_function_of_providers_says_that_it_is_not_offered() {
    type Code = unsafe extern "C" fn(*mut c_void, *mut c_void, *mut c_void) -> c_int;
    let library = open();
    let null = core::ptr::null_mut();
    let names = include_str!("../symbols.txt").lines().filter_map(|line| line.split('@').next());
    let commands: Vec<&str> = names.filter(|name| name.starts_with("ibv_cmd_")).collect();
    assert!(commands.len() > 50, "{}", commands.len());
    for name in commands {
        // SAFETY: the functions look at none of their arguments.
        let (code, error) = unsafe {
            *libc::__errno_location() = 0;
            let code = library.get::<Code>(name).unwrap()(null, null, null);
            (code, *libc::__errno_location())
        };
        assert_eq!(error, libc::EOPNOTSUPP, "{name}");
        assert!(code == libc::EOPNOTSUPP || code == -1, "{name}: {code}");
    }
}

#[test]
fn pages_are_not_pinned_so_that_fork_needs_nothing() {
    type Fork = unsafe extern "C" fn() -> c_int;
    type Range = unsafe extern "C" fn(*mut c_void, usize) -> c_int;
    let library = open();
    // SAFETY: the symbols have these types.
    unsafe {
        let state = library.get::<Fork>("ibv_is_fork_initialized").unwrap();
        let init = library.get::<Fork>("ibv_fork_init").unwrap();
        // IBV_FORK_UNNEEDED
        assert_eq!((state(), init(), state()), (2, 0, 2));
        for name in ["ibv_dontfork_range", "ibv_dofork_range"] {
            assert_eq!(library.get::<Range>(name).unwrap()(core::ptr::null_mut(), 0), 0);
        }
    }
}

/// As sysfs has it: 1 is RoCE v2.
#[test]
fn a_gid_has_a_type() {
    type GidType = unsafe extern "C" fn(*mut ibv_context, u8, u32, *mut c_int) -> c_int;
    let library = open();
    let (context, mut kind) = (context(&library), -1);
    // SAFETY: the symbol has this type.
    unsafe {
        let query = library.get::<GidType>("ibv_query_gid_type").unwrap();
        assert_eq!((query(context, 1, 0, &mut kind), kind), (0, 1));
        assert_eq!(query(context, 1, 1, &mut kind), -1);
        assert_eq!(*libc::__errno_location(), libc::EINVAL);
    }
}

/// A duplicate of the command descriptor stands for the device, and handles for its objects.
#[test]
fn a_device_and_its_domain_are_imported() {
    type ImportDevice = unsafe extern "C" fn(c_int) -> *mut ibv_context;
    type AllocPd = unsafe extern "C" fn(*mut ibv_context) -> *mut ibv_pd;
    type ImportPd = unsafe extern "C" fn(*mut ibv_context, u32) -> *mut ibv_pd;
    type Pd<T> = unsafe extern "C" fn(*mut ibv_pd) -> T;
    let library = open();
    let context = context(&library);
    // SAFETY: the symbols have these types; each struct is given back once.
    unsafe {
        let copy = libc::dup((*context).cmd_fd);
        let import = library.get::<ImportDevice>("ibv_import_device").unwrap();
        let (other, none) = (import(copy), import(-1));
        assert!(none.is_null() && (*other).cmd_fd == copy);
        let pd = library.get::<AllocPd>("ibv_alloc_pd").unwrap()(context);
        let again = library.get::<ImportPd>("ibv_import_pd").unwrap()(other, (*pd).handle);
        assert_eq!((*again).context, other);
        let dealloc = library.get::<Pd<c_int>>("ibv_dealloc_pd").unwrap();
        assert_eq!((dealloc(again), dealloc(pd)), (0, libc::ENOENT));
        library.get::<Pd<()>>("ibv_unimport_pd").unwrap()(pd);
        let close = library.get::<CloseDevice>("ibv_close_device").unwrap();
        assert_eq!((close(other), close(context)), (0, 0));
    }
}

/// A datagram queue pair joins a group, and what it does twice, or too early, has the kernel's
/// errors.
#[test]
fn a_multicast_group_is_the_devices() {
    type AllocPd = unsafe extern "C" fn(*mut ibv_context) -> *mut ibv_pd;
    type CreateCq = unsafe extern "C" fn(
        *mut ibv_context,
        c_int,
        *mut c_void,
        *mut ibv_comp_channel,
        c_int,
    ) -> *mut ibv_cq;
    type CreateQp = unsafe extern "C" fn(*mut ibv_pd, *mut ibv_qp_init_attr) -> *mut ibv_qp;
    type DestroyQp = unsafe extern "C" fn(*mut ibv_qp) -> c_int;
    type Multicast = unsafe extern "C" fn(*mut ibv_qp, *const ibv_gid, u16) -> c_int;
    let library = open();
    let context = context(&library);
    let null = core::ptr::null_mut();
    // SAFETY: the symbols have these types; zero is a valid value of every field.
    unsafe {
        let pd = library.get::<AllocPd>("ibv_alloc_pd").unwrap()(context);
        let create_cq = library.get::<CreateCq>("ibv_create_cq").unwrap();
        let cq = create_cq(context, 16, null, core::ptr::null_mut(), 0);
        let mut attr: ibv_qp_init_attr = core::mem::zeroed();
        (attr.send_cq, attr.recv_cq, attr.qp_type) = (cq, cq, ibv_qp_type::IBV_QPT_UD);
        let qp = library.get::<CreateQp>("ibv_create_qp").unwrap()(pd, &mut attr);
        assert!(!qp.is_null());
        let attach = library.get::<Multicast>("ibv_attach_mcast").unwrap();
        let detach = library.get::<Multicast>("ibv_detach_mcast").unwrap();
        let destroy = library.get::<DestroyQp>("ibv_destroy_qp").unwrap();
        let mut group = ibv_gid { raw: [0; 16] };
        assert_eq!(attach(qp, &group, 0), libc::EINVAL);
        group.raw[0] = 0xff;
        assert_eq!(detach(qp, &group, 0), libc::EINVAL);
        assert_eq!((attach(qp, &group, 0), attach(qp, &group, 0)), (0, 0));
        assert_eq!(destroy(qp), libc::EBUSY);
        assert_eq!((detach(qp, &group, 0), destroy(qp)), (0, 0));
    }
}

#[test]
fn a_pkey_is_found_by_its_value() {
    type Index = unsafe extern "C" fn(*mut ibv_context, u8, __be16) -> c_int;
    let library = open();
    let context = context(&library);
    // SAFETY: the symbol has this type.
    unsafe {
        let index = library.get::<Index>("ibv_get_pkey_index").unwrap();
        assert_eq!(index(context, 1, 0xffff), 0);
        assert_eq!(index(context, 1, 0x1234), -1);
    }
}

#[test]
fn values_have_texts() {
    type Text = unsafe extern "C" fn(c_int) -> *const c_char;
    let library = open();
    // SAFETY: the symbol has this type, and its texts are constants.
    unsafe {
        let text = library.get::<Text>("ibv_wc_status_str").unwrap();
        assert_eq!(CStr::from_ptr(text(12)), c"transport retry counter exceeded");
        assert_eq!(CStr::from_ptr(text(-1)), c"unknown");
        assert_eq!(CStr::from_ptr(text(24)), c"unknown");
    }
}

#[test]
fn a_file_that_does_not_fit_with_its_end_is_refused() {
    type Read = unsafe extern "C" fn(*const c_char, *const c_char, *mut u8, usize) -> c_int;
    let library = open();
    let folder = std::env::temp_dir();
    let name = format!("soft-rnic-abi-{}", std::process::id());
    std::fs::write(folder.join(&name), "4096\n").unwrap();
    let [folder_c, name_c] = [folder.to_str().unwrap(), &name].map(|s| CString::new(s).unwrap());
    let read = |room: &mut [u8]| {
        // SAFETY: the symbol has this type; strings end with zero.
        unsafe {
            let read = library.get::<Read>("ibv_read_sysfs_file").unwrap();
            read(folder_c.as_ptr(), name_c.as_ptr(), room.as_mut_ptr(), room.len())
        }
    };
    let mut room = [1; 8];
    assert_eq!(read(&mut room), 4);
    assert_eq!(&room[..5], b"4096\0");
    assert_eq!(read(&mut room[..5]), 4);
    assert_eq!(read(&mut room[..4]), -1);
    assert_eq!(read(&mut []), -1);
    std::fs::remove_file(folder.join(&name)).unwrap();
    assert_eq!(read(&mut room), -1);
}

/// A datagram's header names the address of its sender.
#[test]
fn the_sender_of_a_datagram_is_found_in_either_header() {
    type Init = unsafe extern "C" fn(
        *mut ibv_context,
        u8,
        *mut ibv_wc,
        *mut ibv_grh,
        *mut ibv_ah_attr,
    ) -> c_int;
    let library = open();
    let context = context(&library);
    let init = |grh: &[u8; 40]| {
        // SAFETY: zero is a valid value of every field; the symbol has this type.
        unsafe {
            let mut wc: ibv_wc = core::mem::zeroed();
            wc.wc_flags = ibv_wc_flags::IBV_WC_GRH.0;
            let mut attr = ibv_ah_attr::default();
            let grh = grh.as_ptr().cast_mut().cast();
            let init = library.get::<Init>("ibv_init_ah_from_wc").unwrap();
            (init(context, 1, &mut wc, grh, &mut attr), attr.grh.dgid.raw, attr)
        }
    };
    type Query = unsafe extern "C" fn(*mut ibv_context, u8, c_int, *mut ibv_gid) -> c_int;
    let mut own = ibv_gid { raw: [0; 16] };
    // SAFETY: the symbol has this type, and the context is open.
    let own = unsafe {
        assert_eq!(library.get::<Query>("ibv_query_gid").unwrap()(context, 1, 0, &mut own), 0);
        own.raw
    };
    let mut grh = [0; 40];
    assert_eq!(init(&grh).0, -1, "of no protocol");
    grh[20..22].copy_from_slice(&[0x45, 7]);
    grh[28] = 64;
    grh[32..36].copy_from_slice(&[127, 0, 0, 2]);
    grh[36..].copy_from_slice(&own[12..]);
    let (code, sender, attr) = init(&grh);
    assert_eq!((code, &sender[10..]), (0, &[0xff, 0xff, 127, 0, 0, 2][..]));
    assert_eq!((attr.is_global, attr.grh.hop_limit, attr.grh.traffic_class), (1, 64, 7));

    let mut grh: [u8; 40] = core::array::from_fn(|i| i as u8);
    grh[..4].copy_from_slice(&0x6ab1_2345_u32.to_be_bytes());
    assert_eq!(init(&grh).0, -1, "to another GID");
    grh[24..].copy_from_slice(&own);
    let (code, sender, attr) = init(&grh);
    assert_eq!((code, sender[0]), (0, 8));
    assert_eq!((attr.grh.hop_limit, attr.grh.traffic_class), (7, 0xab));
    assert_eq!(attr.grh.flow_label, 0x1_2345);
}
