//! Errors of devices and their ports.

use thiserror::Error;

use crate::errno::Errno;

/// Listing the devices failed. A kernel without RDMA is not an error: its list is empty.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("listing the RDMA devices: {errno}")]
pub struct ListDevicesError {
    /// The system's reason.
    pub errno: Errno,
}

/// A device could not be opened.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("opening {device}: {errno}")]
pub struct OpenDeviceError {
    /// The device's name.
    pub device: String,
    /// The system's reason.
    pub errno: Errno,
}

/// A device did not tell its limits.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("querying {device}: {errno}")]
pub struct QueryDeviceError {
    /// The device's name.
    pub device: String,
    /// The system's reason.
    pub errno: Errno,
}

/// A port did not tell its attributes, or there is no such port.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("querying port {port} of {device}: {errno}")]
pub struct QueryPortError {
    /// The device's name.
    pub device: String,
    /// The port number, from 1.
    pub port: u8,
    /// The system's reason.
    pub errno: Errno,
}

/// No GID could be chosen.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ChooseGidError {
    /// The port itself cannot be queried.
    #[error(transparent)]
    Port(#[from] QueryPortError),
    /// The index that was asked for holds no GID.
    #[error("port {port} has no GID at index {wanted}; it has them at {present:?}")]
    NoSuchIndex {
        /// The port number, from 1.
        port: u8,
        /// The index that was asked for.
        wanted: u32,
        /// The indices that hold one.
        present: Vec<u32>,
    },
    /// The port has no GID at all.
    #[error("port {port} has no GID; is its network interface up?")]
    Empty {
        /// The port number, from 1.
        port: u8,
    },
}

/// Waiting for, or taking, an asynchronous event failed.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("waiting for an asynchronous event of {device}: {errno}")]
pub struct AsyncEventError {
    /// The device's name.
    pub device: String,
    /// The system's reason.
    pub errno: Errno,
}
