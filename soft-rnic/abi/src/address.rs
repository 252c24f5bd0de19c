//! Addresses: that of a datagram's sender, and a peer's address in the layer below.

use core::ffi::c_int;

use verbs_sys::*;

use crate::{device, gids};

/// Route of a datagram: its source, and its destination GID.
struct Route {
    sender: [u8; 16],
    receiver: [u8; 16],
    flow_label: u32,
    hop_limit: u8,
    traffic_class: u8,
}

impl Route {
    /// From the 40 bytes in front of a datagram's payload: the header of an IPv6 packet (or of
    /// InfiniBand), or in the last 20 of them that of an IPv4 packet.
    fn from_grh(grh: &[u8; 40]) -> Option<Route> {
        if grh[0] >> 4 == 6 {
            let first = u32::from_be_bytes([grh[0], grh[1], grh[2], grh[3]]);
            return Some(Route {
                sender: *grh[8..].first_chunk()?,
                receiver: *grh[24..].first_chunk()?,
                flow_label: first & 0xf_ffff,
                hop_limit: grh[7],
                traffic_class: (first >> 20) as u8,
            });
        }
        let ip = &grh[20..];
        (ip[0] >> 4 == 4).then_some(())?;
        Some(Route {
            sender: mapped(*ip[12..].first_chunk()?),
            receiver: mapped(*ip[16..].first_chunk()?),
            flow_label: 0,
            hop_limit: ip[8],
            traffic_class: ip[1],
        })
    }
}

/// The GID of an IPv4 address.
fn mapped(ip: [u8; 4]) -> [u8; 16] {
    std::net::Ipv4Addr::from(ip).to_ipv6_mapped().octets()
}

/// `ibv_init_ah_from_wc`: the address of the sender of a datagram.
pub(crate) unsafe extern "C" fn init_ah_from_wc(
    context: *mut ibv_context,
    port_num: u8,
    wc: *mut ibv_wc,
    grh: *mut ibv_grh,
    ah_attr: *mut ibv_ah_attr,
) -> c_int {
    // SAFETY: the caller's completion, and the header if the completion says that there is one.
    let (Some(wc), false) = (unsafe { wc.as_ref() }, ah_attr.is_null()) else {
        return super::minus_one(libc::EINVAL);
    };
    let mut attr = ibv_ah_attr {
        dlid: wc.slid,
        sl: wc.sl,
        src_path_bits: wc.dlid_path_bits,
        port_num,
        ..ibv_ah_attr::default()
    };
    if wc.wc_flags & ibv_wc_flags::IBV_WC_GRH.0 != 0 {
        // SAFETY: `grh` is the caller's header, since `wc_flags` says that there is one; it has 40
        // bytes, at any address.
        let grh = (!grh.is_null()).then(|| unsafe { grh.cast::<[u8; 40]>().read() });
        let Some(route) = grh.and_then(|grh| Route::from_grh(&grh)) else {
            return super::minus_one(libc::EPROTONOSUPPORT);
        };
        // SAFETY: the caller's context.
        let sgid_index = match unsafe { gids::find(context, port_num, route.receiver) } {
            Ok(index) => index,
            Err(error) => return super::minus_one(error),
        };
        attr.is_global = 1;
        attr.grh = ibv_global_route {
            dgid: ibv_gid { raw: route.sender },
            flow_label: route.flow_label,
            sgid_index,
            hop_limit: route.hop_limit,
            traffic_class: route.traffic_class,
        };
    }
    // SAFETY: the caller's place for the address.
    unsafe { ah_attr.write(attr) };
    0
}

/// `ibv_create_ah_from_wc`: a handle for the sender of a datagram.
pub(crate) unsafe extern "C" fn create_ah_from_wc(
    pd: *mut ibv_pd,
    wc: *mut ibv_wc,
    grh: *mut ibv_grh,
    port_num: u8,
) -> *mut ibv_ah {
    let mut attr = ibv_ah_attr::default();
    // SAFETY: the caller's domain, completion and header.
    unsafe {
        if pd.is_null() {
            super::set_errno(libc::EINVAL);
        } else if init_ah_from_wc((*pd).context, port_num, wc, grh, &mut attr) == 0 {
            return device::create_ah(pd, &mut attr);
        }
    }
    core::ptr::null_mut()
}

/// `ibv_resolve_eth_l2_from_gid`: the Ethernet address behind a GID. The device's port is on the
/// loopback interface, whose address is zero, and reaches nothing but itself. Errors are negative,
/// and `vid` may be NULL, as in rdma-core.
pub(crate) unsafe extern "C" fn resolve_eth_l2_from_gid(
    context: *mut ibv_context,
    attr: *mut ibv_ah_attr,
    eth_mac: *mut u8,
    vid: *mut u16,
) -> c_int {
    const NO_VLAN: u16 = 0xffff;
    // SAFETY: the caller's address.
    let (Some(attr), false) = (unsafe { attr.as_ref() }, eth_mac.is_null()) else {
        return -super::set_errno(libc::EINVAL);
    };
    // SAFETY: the caller's context, and room for the address and the number; the members of the
    // union are bytes.
    unsafe {
        if gids::find(context, attr.port_num, attr.grh.dgid.raw).is_err() {
            return -super::set_errno(libc::EHOSTUNREACH);
        }
        eth_mac.write_bytes(0, ETHERNET_LL_SIZE as usize);
        if let Some(vid) = vid.as_mut() {
            *vid = NO_VLAN;
        }
    }
    0
}
