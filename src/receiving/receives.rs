//! A receiver of a protocol whose messages are copied out: its calls are those of its
//! [`CopyReceiving`](super::CopyReceiving).

/// Makes a [`RecvHalf`](crate::RecvHalf) of a receiver that has such a field, `receiving`.
macro_rules! receives_copies {
    ($receiver:ty) => {
        impl $crate::RecvHalf for $receiver {
            type Message = $crate::copies::Message;

            fn peers(&self) -> usize {
                self.receiving.peers()
            }

            fn registered_bytes(&self) -> u64 {
                self.receiving.registered_bytes()
            }

            #[inline]
            fn try_recv(&mut self) -> Result<$crate::copies::Message, $crate::error::RecvError> {
                self.receiving.try_recv().map($crate::copies::IntoMessage::into_message)
            }

            #[inline]
            fn try_recv_each(
                &mut self,
                each: impl FnMut($crate::peer::Peer, &[u8]),
            ) -> Result<usize, $crate::error::RecvError> {
                self.receiving.try_recv_each(each)
            }

            fn arm(&mut self) -> Result<$crate::arm::Arm<'_>, $crate::error::RecvError> {
                self.receiving.arm()
            }
        }

        impl $crate::half::driven::Receiver for $receiver {
            type Taken = $crate::copies::Message;

            fn recv_until(
                &mut self,
                deadline: $crate::wait::Deadline,
            ) -> Result<$crate::copies::Message, $crate::error::RecvError> {
                let taken = self.receiving.recv_until(deadline);
                taken.map($crate::copies::IntoMessage::into_message)
            }

            fn qp_of(&self, peer: $crate::peer::Peer) -> Option<&$crate::wire::ConnectedQp> {
                self.receiving.qp_of(peer)
            }

            fn abandon(&mut self) {
                self.receiving.abandon();
            }
        }

        impl Drop for $receiver {
            fn drop(&mut self) {
                self.receiving.stop();
            }
        }
    };
}
pub(crate) use receives_copies;
