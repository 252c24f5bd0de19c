//! A request before its decision.

use std::fmt;

use conn_core::direct_read::Refusal;
use verbs_safe::{Buffer, FileRegion};

use super::room::ReadSink;
use super::{FileReading, NotReadReason, Reading, Receiver};
use crate::peer::Peer;
use crate::zero_copy::{NotRead, OfferedMessage};

/// The oldest offered message without a decision, before it is read. Dropping it decides nothing:
/// it stays the oldest one.
pub struct Request<'r> {
    receiver: &'r mut Receiver,
}

/// A request was not read into the file; both are here again.
#[derive(Debug, thiserror::Error)]
#[error("{error}")]
pub struct NotReadIntoFile<'r> {
    /// The request, still undecided.
    pub request: Request<'r>,
    /// The registration of the file.
    pub region: FileRegion,
    /// The reason.
    pub error: NotReadReason,
}

impl<'r> Request<'r> {
    /// The receiver has one.
    pub(super) fn new(receiver: &'r mut Receiver) -> Request<'r> {
        Request { receiver }
    }

    /// Reads the message straight to the beginning of a piece of a file: this process does not
    /// access the bytes before they are in the file. Does not wait until they are there. Each
    /// READ has [`MIN_READ_BYTES`](FileRegion::MIN_READ_BYTES) or more.
    ///
    /// ```
    /// use rdma_conn::direct_read::{BufferConfig, Config, pair};
    /// use rdma_conn::{OfferedMessage, ZeroCopyRecv, ZeroCopySend};
    ///
    /// let device = rdma_conn::device::soft()?;
    /// let (mut sender, mut receiver) = pair(&device, &device, &Config::default())?;
    /// let mut message = device.pd().register_buffer(65_536, BufferConfig::READABLE)?;
    /// message.fill(7);
    /// sender.offer(message, b"").map_err(|e| e.error)?;
    ///
    /// let path = std::env::temp_dir().join(format!("message-{}", std::process::id()));
    /// let file = std::fs::File::options().read(true).write(true).create_new(true).open(&path)?;
    /// file.set_len(65_536)?;
    /// let region = device.pd().register_file(&file, 0, 65_536)?;
    /// let reading = receiver.next_request()?.read_into_file(region).map_err(|e| e.error)?;
    /// receiver.wait_file(reading)?;
    /// assert_eq!(std::fs::read(&path)?, [7; 65_536]);
    /// # std::fs::remove_file(&path)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`NotReadIntoFile`] with the registration and the request.
    pub fn read_into_file(self, region: FileRegion) -> Result<FileReading, NotReadIntoFile<'r>> {
        let receiver = self.receiver.serial;
        match self.receiver.read_oldest(ReadSink::File(region)) {
            Ok(ticket) => Ok(FileReading { receiver, ticket }),
            Err((ReadSink::File(region), error)) => {
                Err(NotReadIntoFile { request: self, region, error })
            }
            Err(_) => unreachable!("a file was handed over"),
        }
    }

    /// Takes a message without bytes, which has application data only: its sender sees it as read.
    ///
    /// # Errors
    /// The request itself, if it has bytes.
    pub fn take_empty(self) -> Result<(), Request<'r>> {
        match self.receiver.take_empty_oldest() {
            true => Ok(()),
            false => Err(self),
        }
    }
}

impl OfferedMessage for Request<'_> {
    type Reading = Reading;

    fn peer(&self) -> Peer {
        self.receiver.oldest().map_or(Peer(u32::MAX), |arrived| arrived.peer)
    }

    fn bytes(&self) -> u64 {
        self.receiver.oldest().map_or(0, |arrived| arrived.len)
    }

    fn app(&self) -> &[u8] {
        self.receiver.oldest().map_or(&[], |arrived| &arrived.app)
    }

    fn read_into(self, buffer: Buffer) -> Result<Reading, NotRead<Self>> {
        let receiver = self.receiver.serial;
        match self.receiver.read_oldest(ReadSink::Buffer(buffer)) {
            Ok(ticket) => Ok(Reading { receiver, ticket }),
            Err((ReadSink::Buffer(buffer), error)) => {
                Err(NotRead { request: Some(self), buffer, error })
            }
            Err(_) => unreachable!("a buffer was handed over"),
        }
    }

    fn refuse_with(self, why: Refusal) {
        self.receiver.refuse_oldest(why);
    }
}

impl fmt::Debug for Request<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Request")
            .field("peer", &self.peer())
            .field("bytes", &self.bytes())
            .finish_non_exhaustive()
    }
}
