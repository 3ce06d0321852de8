//! What a node needs to be one of several: its certificate, its connections to the others, its place among them.

use super::{Fallen, options};
use crate::api::Api;
use crate::config::Config;
use cluster::directory::Directory;
use cluster::membership::{Ground, MembershipOptions};
use cluster::mesh::{Mesh, MeshOptions, RaftPipe};
use cluster::peers::Switchboard;
use cluster::{Around, Membership};
use shard::Host;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use uuid::Uuid;

/// Everything that can be wrong with the settings was looked at.
pub struct Prepared {
    options: MeshOptions,
    pipe: Arc<RaftPipe>,
}

impl Prepared {
    /// # Errors
    /// Names the key whose file cannot be used, or the names in a certificate that is another silo's.
    pub fn new(config: &Config, client: SocketAddr) -> anyhow::Result<Self> {
        let options = options::mesh(config, client).map_err(anyhow::Error::msg)?;
        options.tls.check()?;
        let names = options.tls.names()?;
        anyhow::ensure!(
            names.contains(&config.name),
            "Expected the certificate {} to bear this silo's name {:?}, but found {}",
            config.cluster.tls.cert.display(),
            config.name,
            if names.is_empty() { "none".to_owned() } else { names.join(", ") }
        );
        Ok(Self { options, pipe: RaftPipe::new() })
    }

    /// How the replicas reach each other, once [`Prepared::start`] is through.
    pub fn pipe(&self) -> Arc<RaftPipe> {
        Arc::clone(&self.pipe)
    }

    /// Listens for the others and begins to look for them.
    pub async fn start(self, host: &Host) -> Result<Neighbours, cluster::mesh::Error> {
        let boot = rand::random();
        let services = Arc::<Switchboard>::default();
        let mesh = Mesh::start(
            self.options,
            host.node_id(),
            boot,
            host.cluster_id(),
            self.pipe,
            host.clone(),
            Arc::clone(&services),
        )
        .await?;
        let around = Around { peers: mesh.peers(), directory: Directory::default(), services };
        Ok(Neighbours { mesh, around, boot, fallen: watch::Sender::new(None) })
    }
}

/// The running connections.
pub struct Neighbours {
    mesh: Arc<Mesh>,
    around: Around,
    boot: u64,
    fallen: watch::Sender<Option<Fallen>>,
}

impl Neighbours {
    pub fn around(&self) -> Around {
        self.around.clone()
    }

    /// New at every start of this process.
    pub fn boot(&self) -> u64 {
        self.boot
    }

    pub fn mesh(&self) -> &Arc<Mesh> {
        &self.mesh
    }

    pub fn set_cluster(&self) -> Arc<dyn Fn(Uuid) + Send + Sync> {
        let mesh = Arc::clone(&self.mesh);
        Arc::new(move |cluster| mesh.set_cluster(cluster))
    }

    /// Founds, joins or takes up again, however long that takes, and tells the edge when it is done. Then it watches that the
    /// node may stay.
    pub fn enter(&self, ground: Ground, options: MembershipOptions, api: Api) -> JoinHandle<()> {
        let (mesh, fallen) = (Arc::clone(&self.mesh), self.fallen.clone());
        tokio::spawn(async move {
            let entering = async {
                match Membership::enter(ground, options).await {
                    Ok(membership) => {
                        tracing::info!("this silo belongs to its cluster");
                        api.joined(membership.clone());
                        membership.removed().await;
                        "Expected to be a member, but this silo was taken out of its cluster for good.".to_owned()
                    }
                    Err(error) => error.to_string(),
                }
            };
            let message = tokio::select! {
                message = entering => message,
                error = mesh.barred() => error.to_string(),
            };
            tracing::error!("{message}");
            fallen.send_replace(Some(Fallen { message }));
        })
    }

    pub async fn fallen(&self) -> Fallen {
        let mut fallen = self.fallen.subscribe();
        let found = fallen.wait_for(Option::is_some).await.ok().and_then(|found| found.clone());
        match found {
            Some(fallen) => fallen,
            // The sender is in this very value, so it is not gone.
            None => std::future::pending().await,
        }
    }

    pub async fn stop(&self, within: Duration) {
        self.mesh.stop(within).await;
    }
}
