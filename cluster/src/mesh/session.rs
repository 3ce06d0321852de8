//! A connection that was accepted: its stream, and who is at the other end once that is proven.

use super::socket::{Binding, Secured};
use parking_lot::Mutex;
use shard::NodeId;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::{io, io::IoSlice};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::sync::OwnedSemaphorePermit;
use tokio_rustls::TlsStream;
use tokio_util::sync::CancellationToken;
use tonic::Status;
use tonic::transport::server::Connected;

pub(super) struct Session {
    pub names: Vec<String>,
    pub binding: Binding,
    pub remote: SocketAddr,
    guest: Mutex<Option<Guest>>,
}

/// Who has said hello on a connection.
#[derive(Clone)]
pub(super) struct Guest {
    pub node: NodeId,
    pub boot: u64,
    pub life: CancellationToken,
}

impl Session {
    pub(super) fn welcome(&self, node: NodeId, boot: u64, life: CancellationToken) {
        *self.guest.lock() = Some(Guest { node, boot, life });
    }

    pub(super) fn dismiss(&self) {
        *self.guest.lock() = None;
    }

    /// Whoever has not said hello, or whose place another process has taken since, is not served.
    pub(super) fn guest(&self) -> Result<Guest, Box<Status>> {
        let guest = self.guest.lock().clone();
        guest
            .filter(|guest| !guest.life.is_cancelled())
            .ok_or_else(|| Box::new(Status::unauthenticated("Expected a hello first, but there was none that holds")))
    }
}

/// The stream of a session, for the server.
pub(super) struct Accepted {
    stream: TlsStream<TcpStream>,
    session: Arc<Session>,
    _permit: Option<OwnedSemaphorePermit>,
}

impl From<Secured> for Accepted {
    fn from(secured: Secured) -> Self {
        let Secured { stream, names, binding, remote, permit } = secured;
        let session = Arc::new(Session { names, binding, remote, guest: Mutex::default() });
        Self { stream, session, _permit: permit }
    }
}

impl Connected for Accepted {
    type ConnectInfo = Arc<Session>;

    fn connect_info(&self) -> Self::ConnectInfo {
        self.session.clone()
    }
}

impl AsyncRead for Accepted {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl AsyncWrite for Accepted {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, bytes)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
