//! A `granary dev` process on loopback: started, killed by pid, started again on the same data.

use anyhow::{Context, Result, bail};
use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// How long a start may take on a busy machine before the test gives up.
const START_MAX: Duration = Duration::from_secs(60);

pub struct Server {
    child: Child,
    data: PathBuf,
    pub port: u16,
}

impl Server {
    /// Starts on a free port and waits until `/readyz` says yes.
    pub fn start(data: &Path) -> Result<Self> {
        Self::start_at(data, free_port()?)
    }

    fn start_at(data: &Path, port: u16) -> Result<Self> {
        let mut child = Command::new(binary()?)
            .args(["dev", "--listen", &format!("127.0.0.1:{port}"), "--data"])
            .arg(data)
            .env("RUST_LOG", "warn")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .context("start granary dev")?;
        // Its words are shown when the test fails; a full pipe must not stop it.
        if let Some(stderr) = child.stderr.take() {
            std::thread::spawn(move || {
                for line in BufReader::new(stderr).lines().map_while(|l| l.ok()) {
                    eprintln!("server: {line}");
                }
            });
        }
        let mut server = Self { child, data: data.to_path_buf(), port };
        server.wait_ready()?;
        Ok(server)
    }

    fn wait_ready(&mut self) -> Result<()> {
        let deadline = Instant::now() + START_MAX;
        while Instant::now() < deadline {
            if let Some(status) = self.child.try_wait()? {
                bail!("granary dev ended at once: {status}");
            }
            if ready(self.port) {
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        bail!("granary dev was not ready within {START_MAX:?}")
    }

    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// SIGKILL, then waits until the process is gone: its sockets and locks are free afterwards.
    pub fn kill(&mut self) -> Result<()> {
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }

    /// Starts again on the same data and the same port.
    pub fn restart(&mut self) -> Result<()> {
        let again = Self::start_at(&self.data, self.port)?;
        *self = again;
        Ok(())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The binary that cargo built beside this test.
pub fn binary() -> Result<PathBuf> {
    let mut folder = std::env::current_exe()?;
    folder.pop();
    if folder.ends_with("deps") {
        folder.pop();
    }
    let path = folder.join("granary");
    if !path.exists() {
        bail!("expected the binary at {}: build it with `cargo build -p granary`", path.display());
    }
    Ok(path)
}

fn free_port() -> Result<u16> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}

/// One plain HTTP request: no client library is needed to ask a probe.
fn ready(port: u16) -> bool {
    use std::io::{Read, Write};
    let Ok(mut stream) = std::net::TcpStream::connect(("127.0.0.1", port)) else {
        return false;
    };
    let _ = stream.set_read_timeout(Some(Duration::from_secs(2)));
    if stream.write_all(b"GET /readyz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").is_err() {
        return false;
    }
    let mut head = [0; 12];
    stream.read_exact(&mut head).is_ok() && &head == b"HTTP/1.1 200"
}
