//! A sender that copies each message into the next slot of its send queue, and writes it from
//! there with its trailer.

/// Makes a [`SendHalf`](crate::SendHalf) of a [sender of WRITEs](super::Writes), and `Reserved`, its
/// room. The sender has a `claim`, which returns the place (`$place`) of a message for which there
/// is room, and a `stage_message`, which sends the message that was copied into the next slot.
macro_rules! sends_from_slots {
    ($sender:ident, $place:ty) => {
        impl $sender {
            /// Returns the counters of what was done so far.
            #[must_use]
            pub fn stats(&self) -> SenderStats {
                let (messages, work_requests) =
                    (self.writing.messages(), self.writing.half.posting.posted_total());
                SenderStats { messages, work_requests, ..self.stats }
            }

            /// Messages that were accepted and are still being gathered:
            /// [`flush`](crate::SendHalf::flush) sends them. None, unless a
            /// [`batch`](crate::SendHalf::batch) or [`Config::batch`](super::Config::batch) gathers.
            #[must_use]
            pub fn unflushed(&self) -> u64 {
                self.writing.unflushed()
            }

            /// The queue pair's number.
            #[must_use]
            pub fn qp_num(&self) -> u32 {
                self.writing.half.posting.qp_num()
            }

            /// The memory that a message of `bytes` bytes goes out of, with its trailer.
            #[inline]
            fn slot(&mut self, bytes: usize) -> Result<&mut [u8], SendError> {
                let need = (padded(bytes as u32) + TRAILER_BYTES) as usize;
                let slot = self.writing.half.posting.slot().and_then(|slot| slot.get_mut(..need));
                slot.ok_or(SendError::Full(Full::Requests))
            }
        }

        impl $crate::half::SendHalf for $sender {
            type Room<'a> = Reserved<'a>;

            fn max_message_bytes(&self) -> usize {
                self.limit as usize
            }

            #[inline]
            fn try_send(&mut self, message: &[u8]) -> Result<Ticket, SendError> {
                self.look_after_peer()?;
                let place = self.claim(message.len())?;
                self.slot(message.len())?[..message.len()].copy_from_slice(message);
                self.stage_message(place, message.len())
            }

            fn flush(&mut self) -> Result<(), SendError> {
                self.look_after_peer()?;
                self.writing.half.posting.check()?;
                self.writing.flush()
            }

            fn is_acked(&mut self, ticket: Ticket) -> Result<bool, SendError> {
                self.is_acked_now(ticket)
            }

            fn try_reserve(&mut self, bytes: usize) -> Result<Reserved<'_>, SendError> {
                self.look_after_peer()?;
                let place = self.claim(bytes)?;
                Ok(Reserved { sender: self, place, bytes })
            }

            fn arm(&mut self) -> Result<$crate::arm::Arm<'_>, SendError> {
                let longest = self.limit as usize;
                self.arm_by(|sender| sender.awaits_word(longest))
            }
        }

        impl Driving for $sender {
            fn look_for_room(&mut self, bytes: usize) -> Result<(), SendError> {
                self.claim(bytes).map(drop)
            }
        }

        impl Drop for $sender {
            fn drop(&mut self) {
                self.end();
            }
        }

        /// Room for one message in the slot that it is sent from.
        #[derive(Debug)]
        #[must_use = "nothing is sent before `commit`"]
        pub struct Reserved<'a> {
            sender: &'a mut $sender,
            place: $place,
            bytes: usize,
        }

        impl $crate::half::Room for Reserved<'_> {
            fn capacity(&self) -> usize {
                self.bytes
            }

            fn write(&mut self, at: usize, bytes: &[u8]) -> Result<(), SendError> {
                check_within(at.saturating_add(bytes.len()), self.bytes)?;
                self.sender.slot(self.bytes)?[at..][..bytes.len()].copy_from_slice(bytes);
                Ok(())
            }

            fn commit(self, bytes: usize) -> Result<Ticket, SendError> {
                check_within(bytes, self.bytes)?;
                self.sender.stage_message(self.place, bytes)
            }
        }
    };
}

pub(crate) use sends_from_slots;
