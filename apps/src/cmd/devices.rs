//! `rdma-conn devices`: the devices that exist, the names of others, and what is missing.

mod network;

use std::net::Ipv4Addr;

use base::outcome::{CommandResult, as_usage, usage};
use base::say;
use rdma_conn::device::{self, Found, Nameable, OpenError, PortReport, Provider, survey};
use rdma_conn::verbs_safe::{DeviceAttr, GidEntry};
use serde_json::{Value, json};

use crate::cli::CommonArgs;
use crate::session::bad_distance;

pub(crate) fn run(common: &CommonArgs) -> CommandResult {
    // One at a distance is there when it is asked for.
    let opened = common.device.as_deref().and_then(|name| device::open(Some(name)).ok());
    let survey = survey();
    // How much slower a card's device is, its own name says; a device on the network is named by its
    // address alone.
    let is_renamed = |name: &str| name.contains("@card=") || name.starts_with("roce:");
    let asked = opened.as_ref().map(device::Device::name).filter(|name| is_renamed(name));
    let shown = |d: &&Found| {
        common.device.as_ref().is_none_or(|name| *name == d.name) || asked == Some(&*d.name)
    };
    let devices: Vec<&Found> = survey.devices.iter().filter(shown).collect();
    if let (Some(name), true) = (&common.device, devices.is_empty()) {
        if let Some(why) = bad_distance(name) {
            return Err(usage(why));
        }
        if name.starts_with("roce") {
            // Why it cannot be opened.
            return Err(device::open(Some(name)).map_or_else(as_usage, |_| usage(name.clone())));
        }
        let known = survey.devices.iter().map(|d| d.name.clone()).collect();
        let unknown = OpenError::Unknown { name: name.clone(), known };
        return Err(as_usage(format!(
            "{unknown}: `rdma-conn devices` without --device tells what keeps others away"
        )));
    }
    // Of one device the others are not asked for.
    let nameable = if common.device.is_none() { device::nameable()? } else { Vec::new() };
    if common.json {
        for device in devices {
            say!("{}", device_line(device));
        }
        for device in &nameable {
            say!("{}", nameable_line(device));
        }
        for o in &survey.obstacles {
            say!("{}", json!({ "kind": "obstacle", "what": o.what, "remedy": o.remedy }));
        }
        return Ok(());
    }
    devices.into_iter().for_each(show);
    network::show(&nameable);
    if survey.obstacles.is_empty() {
        return Ok(());
    }
    say!("What keeps more from being used:");
    for o in &survey.obstacles {
        say!("  - {}\n      {}", o.what, o.remedy);
    }
    Ok(())
}

fn show(device: &Found) {
    let provider = match device.provider {
        Provider::Soft => "embedded software device, for the processes of one user",
        _ => "rdma-core",
    };
    say!("{} ({provider}), node GUID {:016x}", device.name, device.guid);
    match &device.attr {
        Ok(attr) => show_limits(attr),
        Err(e) => say!("  {e}"),
    }
    device.ports.iter().for_each(show_port);
    say!("");
}

fn show_limits(a: &DeviceAttr) {
    say!(
        "  limits: {} QPs of {} work requests with {} entries each; {} CQEs in a CQ; {} SRQs of {}; \
         {} READs in flight",
        a.max_qp,
        a.max_qp_wr,
        a.max_sge,
        a.max_cqe,
        a.max_srq,
        a.max_srq_wr,
        a.max_qp_rd_atom
    );
    say!("  on-demand paging: {}", if a.odp.supported { "yes" } else { "no" });
}

fn show_port(port: &PortReport) {
    let a = &port.attr;
    say!(
        "  port {}: {}, {:?}, MTU {} B, messages of up to {} B, LID {}",
        a.port,
        a.state,
        a.link_layer,
        a.active_mtu.bytes(),
        a.max_msg_bytes,
        a.lid
    );
    for entry in &port.gids {
        let chosen = if port.chosen_gid == Some(entry.index) { "  <- used" } else { "" };
        say!("    GID {}: {} {:?}{chosen}", entry.index, gid_text(&entry.gid), entry.kind);
    }
}

/// A GID as people write it: IPv4-mapped ones with their IPv4 address.
fn gid_text(gid: &[u8; 16]) -> String {
    let v6 = std::net::Ipv6Addr::from(*gid);
    match v6.to_ipv4_mapped() {
        Some(v4) => mapped(v4),
        None => v6.to_string(),
    }
}

fn mapped(v4: Ipv4Addr) -> String {
    format!("::ffff:{v4}")
}

fn device_line(device: &Found) -> Value {
    let attr = device.attr.as_ref();
    json!({
        "kind": "device",
        "device": device.name,
        "provider": if device.provider == Provider::Soft { "soft-rnic" } else { "rdma-core" },
        "guid": format!("{:016x}", device.guid),
        "limits": attr.ok().map(limits),
        "error": attr.err(),
        "ports": device.ports.iter().map(port_line).collect::<Value>(),
    })
}

fn limits(a: &DeviceAttr) -> Value {
    json!({
        "max_qp": a.max_qp,
        "max_qp_wr": a.max_qp_wr,
        "max_sge": a.max_sge,
        "max_cqe": a.max_cqe,
        "max_srq": a.max_srq,
        "max_srq_wr": a.max_srq_wr,
        "max_qp_rd_atom": a.max_qp_rd_atom,
        "on_demand_paging": a.odp.supported,
    })
}

fn port_line(port: &PortReport) -> Value {
    let gid = |entry: &GidEntry| {
        let (gid, kind) = (gid_text(&entry.gid), format!("{:?}", entry.kind));
        json!({ "index": entry.index, "gid": gid, "kind": kind })
    };
    json!({
        "port": port.attr.port,
        "state": port.attr.state,
        "link_layer": format!("{:?}", port.attr.link_layer),
        "mtu_bytes": port.attr.active_mtu.bytes(),
        "max_message_bytes": port.attr.max_msg_bytes,
        "lid": port.attr.lid,
        "gids": port.gids.iter().map(gid).collect::<Value>(),
        "gid_index": port.chosen_gid,
    })
}

/// The line of a device on the network that could be named, and is not opened.
fn nameable_line(device: &Nameable) -> Value {
    json!({
        "kind": "nameable",
        "device": device.name,
        "interface": device.interface,
        "mtu_bytes": device.mtu_bytes,
        "path_mtu_bytes": device.path_mtu_bytes,
        "port_free": device.holders.is_empty(),
        "port_shared": device.is_shared,
        "held_by": device.holders,
    })
}
