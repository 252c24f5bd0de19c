//! Values of flags: what people may write.

use std::net::{IpAddr, SocketAddr, ToSocketAddrs};

/// Description of a valid number of bytes, for error messages.
const NOT_BYTES: &str = "bytes, e.g. 4096 or 64k, below 4 GiB";

/// A number of bytes, with a binary suffix or without.
pub fn byte_count(text: &str) -> Result<u32, String> {
    let (digits, shift) = match text.char_indices().last() {
        Some((at, 'k' | 'K')) => (&text[..at], 10),
        Some((at, 'm' | 'M')) => (&text[..at], 20),
        Some((at, 'g' | 'G')) => (&text[..at], 30),
        _ => (text, 0),
    };
    let bytes = digits.parse::<u32>().ok().and_then(|n| n.checked_mul(1 << shift));
    bytes.ok_or_else(|| NOT_BYTES.into())
}

/// A number of bytes that is not 0.
pub fn piece(text: &str) -> Result<u32, String> {
    byte_count(text).and_then(|bytes| (bytes > 0).then_some(bytes).ok_or("at least 1".into()))
}

/// An address or the name of a host, and its port; without one, the port that rdma-core's
/// programs use.
pub fn socket_address(text: &str) -> Result<SocketAddr, String> {
    let port = rdma_conn::conn_core::rc_pingpong::PORT;
    // A number alone would be looked up as an address: 4711 as 0.0.18.103.
    let alone = text.strip_prefix(':').unwrap_or(text);
    if alone.parse::<u16>().is_ok() {
        return Err(format!(
            "a port needs an address before it: 127.0.0.1:{alone}, or 0.0.0.0:{alone} for all of them"
        ));
    }
    if let Ok(address) = text.parse::<IpAddr>() {
        return Ok(SocketAddr::new(address, port));
    }
    let found: std::io::Result<Vec<SocketAddr>> = match text.contains(':') {
        true => text.to_socket_addrs().map(Iterator::collect),
        false => (text, port).to_socket_addrs().map(Iterator::collect),
    };
    let found =
        found.map_err(|e| format!("ADDRESS[:PORT], as 10.0.0.1:{port} or a host's name ({e})"))?;
    // Both ends choose alike, whatever order the names are looked up in.
    let chosen = found.iter().find(|address| address.is_ipv4()).or(found.first());
    chosen.copied().ok_or_else(|| "a host without an address".into())
}

#[cfg(test)]
mod tests;
