//! What the connecting end tells the listening one: its parameters hold.

use std::net::{SocketAddr, TcpStream};

use anyhow::{Context, Result};
use rdma_conn::device::{self, Device, OpenError};
use rdma_conn::send_recv::{Config, Incoming, Listener};
use serde::{Deserialize, Serialize};

use crate::args::{Common, Ends};
use crate::bench::Shape;
use crate::outcome::{as_usage, usage};

/// The parameters of a session, as application data of the handshake (up to 512
/// bytes).
#[derive(Serialize, Deserialize, Debug, Clone, PartialEq)]
pub(crate) struct Session {
    /// `bench` or `pingpong`.
    pub(crate) command: String,
    /// Bytes of each message.
    pub(crate) size: u32,
    /// Bytes of each buffer.
    pub(crate) message_bytes: u32,
    /// What the sender sends with, for the report of the other end.
    pub(crate) unacked: u32,
    pub(crate) batch: u32,
    pub(crate) preset: Option<String>,
    pub(crate) pack_bytes: u32,
    /// Receive buffers for each sender.
    pub(crate) recv_window: u32,
    /// Whether credits are used.
    pub(crate) credits: bool,
    /// Whether payloads can be checked.
    pub(crate) verify: bool,
    /// Senders of this session, and which one this is.
    pub(crate) senders: u32,
    pub(crate) sender: u32,
    /// One completion queue for all senders.
    pub(crate) single_receiver: bool,
    /// How buffers get back into the shared receive queue, if there is one.
    pub(crate) srq: Option<String>,
    /// Length and CRC-32 of the file that is sent.
    pub(crate) file: Option<(u64, u32)>,
}

impl Session {
    pub(crate) fn encode(&self) -> Result<Vec<u8>> {
        let bytes = serde_json::to_vec(self)?;
        anyhow::ensure!(bytes.len() <= 512, "the session's parameters have {} bytes", bytes.len());
        Ok(bytes)
    }

    pub(crate) fn decode(bytes: &[u8], command: &str) -> Result<Session> {
        let session: Session = serde_json::from_slice(bytes)
            .context("the connecting program is not this version of rdma-conn")?;
        anyhow::ensure!(
            session.command == command,
            "the connecting end runs {}, this end {command}: run the same command at both ends",
            session.command
        );
        session.check()?;
        Ok(session)
    }

    /// What this end makes room for must be what it can have. The rest is checked when
    /// the connection is made.
    fn check(&self) -> Result<()> {
        let senders = 1..=Shape::MAX_SENDERS;
        anyhow::ensure!(
            senders.contains(&self.senders) && self.sender < self.senders,
            "sender {} of {}: there may be {} to {}",
            self.sender,
            self.senders,
            senders.start(),
            senders.end()
        );
        let window = 1..=Config::MAX_WINDOW;
        anyhow::ensure!(
            window.contains(&self.recv_window),
            "a window of {} buffers: there may be {} to {}",
            self.recv_window,
            window.start(),
            window.end()
        );
        Ok(())
    }
}

/// The device that was asked for, fit for the ends that were asked for.
pub(crate) fn open_device(common: &Common, ends: &Ends) -> Result<Device> {
    let device = match device::open(common.device.as_deref()) {
        Ok(device) => device,
        Err(e @ OpenError::Unknown { .. }) => return Err(as_usage(e)),
        Err(e) => return Err(e.into()),
    };
    let two_ends = ends.listen.is_some() || ends.connect.is_some();
    if two_ends && !device.crosses_processes() {
        return Err(usage(format!(
            "{} connects the ends of one process only: leave --listen and --connect out, or name a \
             device of rdma-core (`rdma-conn devices` lists them)",
            device.name()
        )));
    }
    if common.device.is_none() && !common.json {
        eprintln!("device: {}", device.name());
    }
    check_gid(&device, common)?;
    Ok(device)
}

/// A GID index that does not exist is the command line's fault.
fn check_gid(device: &Device, common: &Common) -> Result<()> {
    match device.context().choose_gid(1, common.gid_index) {
        Err(e) if common.gid_index.is_some() => Err(as_usage(e)),
        _ => Ok(()),
    }
}

/// Listens, and says where.
pub(crate) fn listen(address: SocketAddr) -> Result<Listener> {
    let listener = Listener::bind(address).with_context(|| {
        format!("cannot listen on {address}: is another program using the port?")
    })?;
    eprintln!("listening on {}", listener.local_addr());
    Ok(listener)
}

/// The next peer that speaks our language and runs the same command; others are
/// refused with the reason, and do not count.
pub(crate) fn next_peer(listener: &Listener, command: &str) -> Result<(Incoming, Session)> {
    loop {
        let incoming = match listener.next() {
            Ok(incoming) => incoming,
            Err(e) => {
                eprintln!("refused a connection: {e}");
                continue;
            }
        };
        match Session::decode(incoming.application(), command) {
            Ok(session) => return Ok((incoming, session)),
            Err(e) => {
                eprintln!("refused a connection: {e:#}");
                incoming.refuse(&format!("{e:#}"));
            }
        }
    }
}

/// Dials the listening end.
pub(crate) fn dial(address: SocketAddr) -> Result<TcpStream> {
    let stream = TcpStream::connect(address).with_context(|| {
        format!("nobody listens on {address}: start the other end with --listen first")
    })?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn session() -> Session {
        Session {
            command: "bench".into(),
            size: u32::MAX,
            message_bytes: u32::MAX,
            unacked: u32::MAX,
            batch: u32::MAX,
            preset: Some("sequential".into()),
            pack_bytes: u32::MAX,
            recv_window: 16_384,
            credits: false,
            verify: false,
            senders: 1024,
            sender: 1023,
            single_receiver: false,
            srq: Some("combining".into()),
            file: Some((u64::MAX, u32::MAX)),
        }
    }

    #[test]
    fn the_longest_one_fits_the_handshake() {
        let bytes = session().encode().unwrap();
        assert_eq!(Session::decode(&bytes, "bench").unwrap(), session());
        assert!(Session::decode(&bytes, "pingpong").is_err());
    }

    #[test]
    fn numbers_that_nobody_has_room_for_are_refused() {
        let fine = session;
        for bad in [
            Session { senders: 0, sender: 0, ..fine() },
            Session { senders: u32::MAX, ..fine() },
            Session { sender: 1024, ..fine() },
            Session { recv_window: 0, ..fine() },
            Session { recv_window: u32::MAX, ..fine() },
        ] {
            assert!(Session::decode(&bad.encode().unwrap(), "bench").is_err(), "{bad:?}");
        }
    }
}
