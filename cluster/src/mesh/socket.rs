//! Sockets between nodes, up to the end of the TLS handshake: before it, no byte reaches anything but TLS.

use super::Error;
use super::tls::{Credentials, Purpose, names};
use rustls::pki_types::ServerName;
use socket2::{SockRef, TcpKeepalive};
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio_rustls::{TlsAcceptor, TlsConnector, TlsStream};
use tokio_util::sync::CancellationToken;

/// Handshakes at once on one listener; sockets beyond it are closed.
const HANDSHAKES_MAX: usize = 64;
/// Connections at once on one listener.
const CONNECTIONS_MAX: usize = 1_024;
/// After an error of accept, which may last (no descriptors left).
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// Sent and not acknowledged for this long: the kernel gives the connection up.
const USER_TIMEOUT: Duration = Duration::from_secs(8);
const KEEPALIVE: Duration = Duration::from_secs(10);

/// Known only to the two ends of one TLS connection.
pub(super) type Binding = [u8; 32];

/// A connection after its handshake.
pub(super) struct Secured {
    pub stream: TlsStream<TcpStream>,
    /// Those in the other side's certificate.
    pub names: Vec<String>,
    pub binding: Binding,
    pub remote: SocketAddr,
    /// Held as long as an accepted connection lives.
    pub permit: Option<OwnedSemaphorePermit>,
}

pub(super) async fn listen(address: SocketAddr) -> Result<TcpListener, Error> {
    let wrong = |error: io::Error| Error::Listen { address: address.to_string(), why: error.to_string() };
    TcpListener::bind(address).await.map_err(wrong)
}

/// Accepts until `stop`, and hands on what has shown a certificate.
pub(super) async fn accept(
    listener: TcpListener,
    credentials: Arc<Credentials>,
    purpose: Purpose,
    within: Duration,
    accepted: mpsc::Sender<Secured>,
    stop: CancellationToken,
) {
    let handshakes = Arc::new(Semaphore::new(HANDSHAKES_MAX));
    let connections = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    loop {
        let socket = tokio::select! {
            () = stop.cancelled() => return,
            socket = listener.accept() => socket,
        };
        let (socket, remote) = match socket {
            Ok(socket) => socket,
            Err(error) => {
                tracing::debug!(%error, "accept failed");
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        let (Ok(handshake), Ok(connection)) =
            (handshakes.clone().try_acquire_owned(), connections.clone().try_acquire_owned())
        else {
            tracing::debug!(%remote, "a connection was closed: too many at once");
            continue;
        };
        let (credentials, accepted) = (credentials.clone(), accepted.clone());
        tokio::spawn(async move {
            let secured = tokio::time::timeout(within, shake(socket, remote, &credentials, purpose)).await;
            drop(handshake);
            match secured {
                Ok(Ok(secured)) => {
                    accepted.send(Secured { permit: Some(connection), ..secured }).await.ok();
                }
                Ok(Err(error)) => tracing::debug!(%remote, %error, "a handshake failed"),
                Err(_) => tracing::debug!(%remote, "a handshake took too long"),
            }
        });
    }
}

async fn shake(
    socket: TcpStream,
    remote: SocketAddr,
    credentials: &Credentials,
    purpose: Purpose,
) -> io::Result<Secured> {
    tune(&socket)?;
    let acceptor = TlsAcceptor::from(credentials.server(purpose).await);
    secured(TlsStream::Server(acceptor.accept(socket).await?), remote)
}

/// Connects to `host:port` and shows the own certificate.
pub(super) async fn dial(
    address: &str,
    credentials: &Credentials,
    purpose: Purpose,
    within: Duration,
) -> io::Result<Secured> {
    let dialled = async {
        let socket = TcpStream::connect(address).await?;
        tune(&socket)?;
        let remote = socket.peer_addr()?;
        let connector = TlsConnector::from(credentials.client(purpose).await);
        // Neither sent nor checked: see the top of `tls`.
        let name = ServerName::from(remote.ip());
        secured(TlsStream::Client(connector.connect(name, socket).await?), remote)
    };
    tokio::time::timeout(within, dialled).await.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
}

fn secured(stream: TlsStream<TcpStream>, remote: SocketAddr) -> io::Result<Secured> {
    let (_, common) = stream.get_ref();
    let certificate = common.peer_certificates().and_then(<[_]>::first).ok_or(io::ErrorKind::PermissionDenied)?;
    let names = names(certificate).map_err(io::Error::other)?;
    let label = b"EXPORTER-granary-hello";
    let binding = match &stream {
        TlsStream::Client(stream) => stream.get_ref().1.export_keying_material([0; 32], label, None),
        TlsStream::Server(stream) => stream.get_ref().1.export_keying_material([0; 32], label, None),
    };
    let binding = binding.map_err(io::Error::other)?;
    Ok(Secured { stream, names, binding, remote, permit: None })
}

fn tune(socket: &TcpStream) -> io::Result<()> {
    socket.set_nodelay(true)?;
    let socket = SockRef::from(socket);
    socket.set_tcp_keepalive(&TcpKeepalive::new().with_time(KEEPALIVE).with_interval(KEEPALIVE))?;
    #[cfg(target_os = "linux")]
    socket.set_tcp_user_timeout(Some(USER_TIMEOUT))?;
    Ok(())
}
