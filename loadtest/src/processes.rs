//! The server and the worker as processes of their own.

use crate::args::Args;
use crate::server_link::Link;
use crate::usage::{self, Usage};
use crate::workload::QUEUE;
use anyhow::Context;
use granary_proto::v1;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;
use tokio::process::{Child, Command};

/// How long the server may take to answer its first call.
const READY_MAX: Duration = Duration::from_secs(60);

pub struct Server {
    child: Child,
    pub url: String,
    command: ServerCommand,
    /// CPU of the processes that were killed before this one.
    spent: Duration,
    peak_rss_bytes: u64,
    /// Removed when the test is over.
    temporary: Option<PathBuf>,
}

struct ServerCommand {
    program: PathBuf,
    listen: String,
    data: PathBuf,
    more: Vec<String>,
}

impl Server {
    pub async fn start(args: &Args) -> anyhow::Result<Self> {
        let program = granary_binary(args).await?;
        let temporary = args.data.is_none().then(|| {
            std::env::temp_dir().join(format!(
                "granary-loadtest-{}-{}",
                std::process::id(),
                uuid::Uuid::now_v7().simple()
            ))
        });
        let data = args.data.clone().or_else(|| temporary.clone()).expect("one of the two is there");
        std::fs::create_dir_all(&data).with_context(|| format!("cannot make the data folder {}", data.display()))?;
        // The port must outlive a kill, so it is chosen here and not by the server. Another process could take it in between;
        // then the start fails and says so.
        let listen = TcpListener::bind("127.0.0.1:0")?.local_addr()?.to_string();
        let command = ServerCommand {
            program,
            listen: listen.clone(),
            data,
            more: args.server_args.split_whitespace().map(str::to_owned).collect(),
        };
        let child = command.spawn()?;
        let server = Self {
            child,
            url: format!("http://{listen}"),
            command,
            spent: Duration::ZERO,
            peak_rss_bytes: 0,
            temporary,
        };
        Ok(server)
    }

    /// Waits for the first answer.
    pub async fn ready(&mut self, link: &Link) -> anyhow::Result<()> {
        tokio::select! {
            ready = ready(link) => ready,
            status = self.child.wait() => anyhow::bail!("the server ended before it was ready: {}", status?),
        }
    }

    /// No warning, no goodbye.
    pub async fn kill(&mut self) -> anyhow::Result<()> {
        let usage = self.usage();
        self.child.kill().await.context("cannot kill the server")?;
        (self.spent, self.peak_rss_bytes) = (usage.cpu, usage.peak_rss_bytes);
        Ok(())
    }

    pub fn start_again(&mut self) -> anyhow::Result<()> {
        self.child = self.command.spawn()?;
        Ok(())
    }

    /// Over all its lives.
    pub fn usage(&self) -> Usage {
        let now = self.child.id().and_then(usage::of).unwrap_or_default();
        Usage {
            cpu: self.spent + now.cpu,
            peak_rss_bytes: self.peak_rss_bytes.max(now.peak_rss_bytes),
            rss_bytes: now.rss_bytes,
        }
    }

    pub async fn stop(mut self) {
        // The data is thrown away or was proven already; nothing is gained by a long goodbye.
        let _ = self.child.kill().await;
        if let Some(folder) = &self.temporary {
            let _ = std::fs::remove_dir_all(folder);
        }
    }
}

impl ServerCommand {
    fn spawn(&self) -> anyhow::Result<Child> {
        Command::new(&self.program)
            .args(["dev", "--quiet", "--listen", &self.listen, "--data"])
            .arg(&self.data)
            .args(&self.more)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .with_context(|| format!("cannot start {}", self.program.display()))
    }
}

pub async fn ready(link: &Link) -> anyhow::Result<()> {
    let list = |attempt| {
        let mut engine = link.engine(attempt);
        async move {
            engine
                .list_workflow_definitions(v1::ListWorkflowDefinitionsRequest { page_size: 1, ..Default::default() })
                .await
        }
    };
    let (answer, _) = tokio::time::timeout(READY_MAX, link.until_answered(list))
        .await
        .with_context(|| format!("the server gave no answer within {} s", READY_MAX.as_secs()))?;
    answer.context("the server does not answer as a Granary server does")?;
    Ok(())
}

pub struct Worker {
    child: Child,
}

impl Worker {
    pub fn start(servers: &[String], capacity: u32) -> anyhow::Result<Self> {
        let child = Command::new(std::env::current_exe()?)
            .args(["worker", "--server", &servers.join(","), "--queue", QUEUE, "--capacity", &capacity.to_string()])
            // Its end of the pipe closes with us, however we end, and the worker ends with it.
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .context("cannot start the worker process")?;
        Ok(Self { child })
    }

    pub fn usage(&self) -> Usage {
        self.child.id().and_then(usage::of).unwrap_or_default()
    }

    pub async fn stop(mut self) {
        let _ = self.child.kill().await;
    }
}

/// The binary beside this program. Under `cargo run` it is built if it is not there, since the newcomer typed one command.
pub async fn granary_binary(args: &Args) -> anyhow::Result<PathBuf> {
    if let Some(path) = &args.granary {
        return Ok(path.clone());
    }
    let folder = std::env::current_exe()?.parent().map(Path::to_owned).unwrap_or_default();
    let beside = folder.join("granary");
    if beside.exists() {
        return Ok(beside);
    }
    let profile = if folder.ends_with("release") { "--release" } else { "--profile=dev" };
    if let Some(cargo) = std::env::var_os("CARGO") {
        eprintln!("loadtest: {} is not there; building it", beside.display());
        let status = Command::new(cargo).args(["build", "-p", "granary", profile]).status().await?;
        anyhow::ensure!(status.success() && beside.exists(), "the granary binary could not be built");
        return Ok(beside);
    }
    anyhow::bail!(
        "Expected the granary binary at {}, but there is none. Build it (cargo build {profile} -p granary) or say where it is \
         (--granary PATH).",
        beside.display()
    )
}
