//! A stream for ractor_cluster that can be ended from outside and does not stay stuck.
//!
//! Stopping a session does not close its socket while a write is stuck; an error in either half does, by the crate's own
//! way of ending. So the halves fail when told to, when nothing was read for long (the crate pings by itself every few
//! seconds), and when a write does not get on.

use ractor_cluster::{BoxRead, BoxWrite, ClusterBidiStream};
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, BufReader, ReadBuf, ReadHalf, WriteHalf};
use tokio::net::TcpStream;
use tokio::time::{Instant, Sleep, sleep};
use tokio_rustls::TlsStream;
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

/// Longer than the longest pause between two of the crate's own pings (5 s), with room for a busy machine.
const READ_IDLE_MAX: Duration = Duration::from_secs(12);
const WRITE_STUCK_MAX: Duration = Duration::from_secs(5);

pub(super) struct Guarded {
    pub stream: TlsStream<TcpStream>,
    /// Comes back with the session's events.
    pub label: String,
    pub end: CancellationToken,
}

impl ClusterBidiStream for Guarded {
    fn split(self: Box<Self>) -> (BoxRead, BoxWrite) {
        let (read, write) = tokio::io::split(self.stream);
        let reader = Reader {
            // The crate reads a length and then a body; both should come of one read of the socket.
            stream: BufReader::new(read),
            end: Box::pin(self.end.clone().cancelled_owned()),
            idle: Box::pin(sleep(READ_IDLE_MAX)),
            last: Instant::now(),
        };
        let writer = Writer { stream: write, end: Box::pin(self.end.cancelled_owned()), stuck: None };
        (Box::new(reader), Box::new(writer))
    }

    fn peer_label(&self) -> Option<String> {
        Some(self.label.clone())
    }
}

struct Reader {
    stream: BufReader<ReadHalf<TlsStream<TcpStream>>>,
    end: Pin<Box<WaitForCancellationFutureOwned>>,
    idle: Pin<Box<Sleep>>,
    last: Instant,
}

impl AsyncRead for Reader {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let me = &mut *self;
        if let Poll::Ready(read) = Pin::new(&mut me.stream).poll_read(cx, buf) {
            me.last = Instant::now();
            return Poll::Ready(read);
        }
        if me.end.as_mut().poll(cx).is_ready() {
            return Poll::Ready(Err(io::ErrorKind::ConnectionAborted.into()));
        }
        // One timer that is moved on when it fires, since moving it at each read would cost more than the read.
        while me.idle.as_mut().poll(cx).is_ready() {
            let until = me.last + READ_IDLE_MAX;
            if until <= Instant::now() {
                return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
            }
            me.idle.as_mut().reset(until);
        }
        Poll::Pending
    }
}

struct Writer {
    stream: WriteHalf<TlsStream<TcpStream>>,
    end: Pin<Box<WaitForCancellationFutureOwned>>,
    /// Only while a write is pending.
    stuck: Option<Pin<Box<Sleep>>>,
}

impl Writer {
    fn guard<T>(&mut self, cx: &mut Context<'_>, polled: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if polled.is_ready() {
            self.stuck = None;
            return polled;
        }
        if self.end.as_mut().poll(cx).is_ready() {
            return Poll::Ready(Err(io::ErrorKind::ConnectionAborted.into()));
        }
        let stuck = self.stuck.get_or_insert_with(|| Box::pin(sleep(WRITE_STUCK_MAX)));
        if stuck.as_mut().poll(cx).is_ready() {
            return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
        }
        Poll::Pending
    }
}

impl AsyncWrite for Writer {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.guard(cx, polled)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let polled = Pin::new(&mut self.stream).poll_flush(cx);
        self.guard(cx, polled)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let polled = Pin::new(&mut self.stream).poll_shutdown(cx);
        self.guard(cx, polled)
    }
}
