//! The address of a device on the network whose name says nothing of it.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};

use anyhow::{Context, Result};
use rdma_conn::device;

use crate::cli::{CommonArgs, EndsArgs};
use crate::outcome::usage;

/// The device's name, with an address: that of this end of the handshake's stream.
pub(super) fn name(common: &CommonArgs, ends: &EndsArgs) -> Result<Option<String>> {
    let Some(name) = &common.device else { return Ok(None) };
    if !device::is_roce_without_address(name) {
        return Ok(Some(name.clone()));
    }
    let ip = match (ends.listen, ends.connect) {
        (Some(at), _) if at.ip().is_unspecified() => return Err(any_address(name, at)),
        (Some(at), _) => at.ip(),
        (None, Some(to)) => {
            towards(to).with_context(|| format!("--device {name}: no address leads to {to}"))?
        }
        (None, None) => return Err(no_end(name)),
    };
    match ip {
        IpAddr::V6(v6) if v6.is_unicast_link_local() => Err(usage(format!(
            "--device {name}: {ip} is an address of one network segment, which a GID cannot name: \
             use another one (`rdma-conn devices` lists them)"
        ))),
        _ => Ok(Some(device::on_address(name, ip.to_canonical()))),
    }
}

/// The local address of a stream to `to`: the system chooses both the same way. No packet is sent.
fn towards(to: SocketAddr) -> std::io::Result<IpAddr> {
    let any: IpAddr = match to {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let socket = UdpSocket::bind((any, 0))?;
    socket.connect(to)?;
    Ok(socket.local_addr()?.ip())
}

fn any_address(name: &str, at: SocketAddr) -> crate::outcome::CommandError {
    usage(format!(
        "--device {name} takes the address of --listen, and {at} is all of them: write --listen ADDRESS, \
         or --device roce:ADDRESS with the address that the other end reaches (`rdma-conn devices` \
         lists them)"
    ))
}

fn no_end(name: &str) -> crate::outcome::CommandError {
    usage(format!(
        "--device {name} takes the address of --listen or --connect: without them write roce:ADDRESS or \
         roce:INTERFACE (`rdma-conn devices` lists them)"
    ))
}
