//! A request that is to be decided.

use std::fmt;

use conn_core::direct_read::Refusal;
use verbs_safe::{Buffer, FileRegion};

use super::room::Room;
use super::{FileReading, NotRead, NotReadIntoFile, Peer, Reading, Receiver};

/// The oldest message that is offered and not decided: what is known of it before it is
/// read. Dropping it decides nothing: it stays the oldest one.
pub struct Request<'r> {
    receiver: &'r mut Receiver,
}

impl<'r> Request<'r> {
    /// The receiver has one.
    pub(super) fn new(receiver: &'r mut Receiver) -> Request<'r> {
        Request { receiver }
    }

    /// Who offers it.
    #[must_use]
    pub fn peer(&self) -> Peer {
        self.receiver.oldest().map_or(Peer(u32::MAX), |arrived| arrived.peer)
    }

    /// Bytes of the message.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.receiver.oldest().map_or(0, |arrived| arrived.len)
    }

    /// What the sender's application has said of it.
    #[must_use]
    pub fn app(&self) -> &[u8] {
        self.receiver.oldest().map_or(&[], |arrived| &arrived.app)
    }

    /// Reads the message to the beginning of `buffer`; does not wait until it is there.
    ///
    /// # Errors
    /// [`NotRead`] with the buffer and the request, as when the buffer is too short.
    pub fn read_into(self, buffer: Buffer) -> Result<Reading, NotRead<'r>> {
        let receiver = self.receiver.serial;
        match self.receiver.read_oldest(Room::Buffer(buffer)) {
            Ok(ticket) => Ok(Reading { receiver, ticket }),
            Err((Room::Buffer(buffer), why)) => Err(NotRead { request: Some(self), buffer, why }),
            Err((Room::File(_), _)) => unreachable!("a buffer was handed over"),
        }
    }

    /// Reads the message to the beginning of a piece of a file, where it is seen by nobody
    /// before it is in the file; does not wait until it is there. Each READ has
    /// [`MIN_READ_BYTES`](FileRegion::MIN_READ_BYTES) or more.
    ///
    /// ```
    /// use rdma_conn::direct_read::{BufferConfig, Config, pair};
    ///
    /// let device = rdma_conn::device::soft()?;
    /// let (mut sender, mut receiver) = pair(&device, &device, &Config::default())?;
    /// let mut message = device.pd().register_buffer(65_536, BufferConfig::READABLE)?;
    /// message.fill(7);
    /// sender.send_async(message, b"").map_err(|e| e.error)?;
    ///
    /// let path = std::env::temp_dir().join(format!("message-{}", std::process::id()));
    /// let file = std::fs::File::options().read(true).write(true).create_new(true).open(&path)?;
    /// file.set_len(65_536)?;
    /// let region = device.pd().register_file(&file, 0, 65_536)?;
    /// let reading = receiver.next_request()?.read_into_file(region).map_err(|e| e.why)?;
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
        match self.receiver.read_oldest(Room::File(region)) {
            Ok(ticket) => Ok(FileReading { receiver, ticket }),
            Err((Room::File(region), why)) => Err(NotReadIntoFile { request: self, region, why }),
            Err((Room::Buffer(_), _)) => unreachable!("a file was handed over"),
        }
    }

    /// Takes a message without bytes, whose application data are all that there is: its
    /// sender sees it as read.
    ///
    /// # Errors
    /// The request again, which has bytes.
    pub fn take_empty(self) -> Result<(), Request<'r>> {
        match self.receiver.take_empty_oldest() {
            true => Ok(()),
            false => Err(self),
        }
    }

    /// Refuses the message: its sender gets its buffer back, and is told.
    pub fn refuse(self) {
        self.refuse_with(Refusal::NotWanted);
    }

    /// Refuses the message for this reason.
    pub fn refuse_with(self, why: Refusal) {
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
