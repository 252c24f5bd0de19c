//! Streams on a tokio runtime.

use std::io::{self, ErrorKind, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncBufRead, AsyncRead, AsyncWrite, ReadBuf};

use super::{ByteReader, ByteStream, ByteWriter, fill, flushed, length, write_error};
use crate::aio;
use crate::error::SendError;
use crate::half::{RecvHalf, SendHalf};
use crate::protocol::Protocol;

/// Time for which the delivery of written bytes continues after [`AsyncWrite::poll_shutdown`],
/// while the peer reads slowly. A runtime that is dropped waits for it.
const DELIVERY_LIMIT: Duration = Duration::from_secs(30);

impl<P: Protocol> From<aio::Connection<P>> for ByteStream<P> {
    fn from(connection: aio::Connection<P>) -> ByteStream<P> {
        let aio::Connection { sender, receiver } = connection;
        ByteStream { reader: receiver.into(), writer: sender.into() }
    }
}

impl<R: RecvHalf + 'static> From<aio::Receiver<R>> for ByteReader<R> {
    fn from(end: aio::Receiver<R>) -> ByteReader<R> {
        ByteReader { end, message: None, read: 0, is_over: false }
    }
}

impl<S: SendHalf + 'static> From<aio::Sender<S>> for ByteWriter<S> {
    fn from(mut end: aio::Sender<S>) -> ByteWriter<S> {
        let chunk = end.half().map_or(0, |half| half.max_message_bytes()).min(super::CHUNK);
        ByteWriter { end: Some(end), chunk }
    }
}

/// Nothing in it is pinned.
impl<R: RecvHalf + 'static> Unpin for ByteReader<R> {}

/// Nothing in it is pinned.
impl<S: SendHalf + 'static> Unpin for ByteWriter<S> {}

/// Nothing in it is pinned.
impl<P: Protocol> Unpin for ByteStream<P> {}

impl<R: RecvHalf + 'static> AsyncBufRead for ByteReader<R> {
    fn poll_fill_buf(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<&[u8]>> {
        let this = self.get_mut();
        while this.rest().is_empty() && !this.is_over {
            let next = ready!(this.end.poll_recv(cx));
            this.take_in(next)?;
        }
        Poll::Ready(Ok(this.rest()))
    }

    fn consume(self: Pin<&mut Self>, bytes: usize) {
        self.get_mut().advance(bytes);
    }
}

impl<R: RecvHalf + 'static> AsyncRead for ByteReader<R> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if into.remaining() > 0 {
            ready!(self.as_mut().poll_fill_buf(cx))?;
            let rest = self.rest();
            let bytes = rest.len().min(into.remaining());
            into.put_slice(&rest[..bytes]);
            self.advance(bytes);
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: SendHalf + 'static> ByteWriter<S> {
    fn end(&mut self) -> io::Result<&mut aio::Sender<S>> {
        let closed = || io::Error::new(ErrorKind::BrokenPipe, "the writing half was closed");
        self.end.as_mut().ok_or_else(closed)
    }
}

impl<S: SendHalf + 'static> AsyncWrite for ByteWriter<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let bytes = &bytes[..bytes.len().min(self.chunk)];
        if !bytes.is_empty() {
            ready!(self.end()?.poll_send(cx, bytes)).map_err(write_error)?;
        }
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        all: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let bytes = length(all, self.chunk);
        if bytes > 0 {
            let sent = self.end()?.poll_with(cx, |half| match half.try_reserve(bytes) {
                Ok(room) => fill(room, all, bytes).map(Some),
                Err(SendError::Full(_)) => Ok(None),
                Err(e) => Err(e),
            });
            ready!(sent).map_err(write_error)?;
        }
        Poll::Ready(Ok(bytes))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.end()?.poll_flush(cx).map(flushed)
    }

    /// As with TCP, it does not wait until the peer has read: two ends that shut down and read no
    /// more would wait for each other. Delivery of written bytes continues for 30 s
    /// (`DELIVERY_LIMIT`).
    fn poll_shutdown(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        if let Some(end) = self.end.take() {
            end.close_aside(DELIVERY_LIMIT);
        }
        Poll::Ready(Ok(()))
    }
}

impl<P: Protocol> AsyncBufRead for ByteStream<P> {
    fn poll_fill_buf(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<&[u8]>> {
        Pin::new(&mut self.get_mut().reader).poll_fill_buf(cx)
    }

    fn consume(mut self: Pin<&mut Self>, bytes: usize) {
        self.reader.advance(bytes);
    }
}

impl<P: Protocol> AsyncRead for ByteStream<P> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.reader).poll_read(cx, into)
    }
}

impl<P: Protocol> AsyncWrite for ByteStream<P> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.writer).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        all: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.writer).poll_write_vectored(cx, all)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.writer).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.writer).poll_shutdown(cx)
    }
}
