//! A socket of the baseline.

use std::io::{ErrorKind, IoSliceMut};
use std::net::{IpAddr, SocketAddr, UdpSocket};

use anyhow::{Context, Result};
use quinn_udp::{BATCH_SIZE, RecvMeta, Transmit, UdpSocketState};

/// Bytes that the kernel is asked to keep, as the device asks.
const BUFFER: usize = 4 << 20;
/// Bytes that one call sends, and one merged run has.
const RUN: usize = 65_000;
const ROOM: usize = 1 << 16;

/// A UDP socket that sends runs of equal datagrams, and takes merged ones.
pub(super) struct GsoSocket {
    udp: UdpSocket,
    state: UdpSocketState,
    room: Vec<u8>,
    metas: [RecvMeta; BATCH_SIZE],
}

impl GsoSocket {
    /// A socket of any free port of an address.
    pub(super) fn bind(ip: IpAddr) -> Result<GsoSocket> {
        let udp = UdpSocket::bind(SocketAddr::new(ip, 0));
        let udp = udp.with_context(|| format!("cannot bind a UDP port of {ip}"))?;
        let state = UdpSocketState::new((&udp).into())?;
        // As much as is granted.
        let _ = state.set_recv_buffer_size((&udp).into(), BUFFER);
        let _ = state.set_send_buffer_size((&udp).into(), BUFFER);
        let room = vec![0; BATCH_SIZE * ROOM];
        Ok(GsoSocket { udp, state, room, metas: [RecvMeta::default(); BATCH_SIZE] })
    }

    pub(super) fn ip(&self) -> IpAddr {
        self.udp.local_addr().map_or(IpAddr::from([0, 0, 0, 0]), |addr| addr.ip())
    }

    pub(super) fn port(&self) -> u16 {
        self.udp.local_addr().map_or(0, |addr| addr.port())
    }

    /// Size of the kernel's receive buffer, in bytes.
    pub(super) fn buffer(&self) -> usize {
        self.state.recv_buffer_size((&self.udp).into()).unwrap_or(BUFFER)
    }

    /// The path MTU that a RoCE v2 device of this address has.
    pub(super) fn path_mtu(&self) -> u32 {
        let port = soft_rnic::udp::UdpPort::bind(SocketAddr::new(self.ip(), 0));
        let mtu = port.ok().and_then(|port| port.mtu()).unwrap_or(1_500);
        let room = mtu.saturating_sub(if self.ip().is_ipv4() { 72 } else { 92 });
        (8..=12).rev().map(|power| 1 << power).find(|mtu| *mtu as usize <= room).unwrap_or(256)
    }

    /// Datagrams of this length that go by one call.
    pub(super) fn run(&self, datagram: usize) -> usize {
        (RUN / datagram).clamp(1, self.state.max_gso_segments().max(1))
    }

    /// Sends datagrams of equal length; returns true if there was room.
    pub(super) fn send(&self, to: SocketAddr, contents: &[u8], datagram: usize) -> Result<bool> {
        let transmit = Transmit {
            destination: to,
            ecn: None,
            contents,
            segment_size: Some(datagram).filter(|datagram| *datagram < contents.len()),
            src_ip: None,
        };
        came(self.state.try_send((&self.udp).into(), &transmit))
    }

    /// Takes received datagrams: calls `each` with the bytes of each run, and the length of its
    /// datagrams. Returns true if there were any.
    pub(super) fn receive(&mut self, mut each: impl FnMut(&[u8], usize)) -> Result<bool> {
        let GsoSocket { udp, state, room, metas } = self;
        let mut rooms = room.chunks_exact_mut(ROOM);
        let mut pieces: [IoSliceMut<'_>; BATCH_SIZE] =
            std::array::from_fn(|_| IoSliceMut::new(rooms.next().unwrap_or_default()));
        let runs = match state.recv((&*udp).into(), &mut pieces, metas) {
            Ok(runs) => runs,
            Err(e) => return came(Err(e)),
        };
        for (meta, piece) in metas.iter().zip(&pieces).take(runs) {
            each(&piece[..meta.len], meta.stride.max(1));
        }
        Ok(runs > 0)
    }

    /// The socket alone.
    pub(super) fn plain(&self) -> &UdpSocket {
        &self.udp
    }
}

/// Reports whether something was sent or received; if the call only reports the error of an earlier
/// datagram, or was interrupted, nothing was.
pub(super) fn came(result: std::io::Result<()>) -> Result<bool> {
    match result {
        Ok(()) => Ok(true),
        Err(e) if e.kind() == ErrorKind::WouldBlock => Ok(false),
        Err(e) if [ErrorKind::ConnectionRefused, ErrorKind::Interrupted].contains(&e.kind()) => {
            Ok(false)
        }
        Err(e) => Err(e.into()),
    }
}

/// Waits a moment.
pub(super) fn give_way(spins: bool) {
    if spins { host::thread::spin_loop() } else { host::thread::yield_now() }
}
