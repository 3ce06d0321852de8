//! Other services, in this process, on ports of their own.

use granary_proto::v1;
use granary_proto::v1::agent_registry_server::{AgentRegistry, AgentRegistryServer};
use granary_proto::v1::policy_engine_server::{PolicyEngine, PolicyEngineServer};
use granary_proto::v1::run_control_journal_server::{RunControlJournal, RunControlJournalServer};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use tokio::net::TcpListener;
use tonic::transport::server::TcpIncoming;
use tonic::{Request, Response, Status};

/// Serves and gives the URL.
async fn serve(routes: tonic::service::Routes) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let server = tonic::transport::Server::builder().add_routes(routes);
    tokio::spawn(server.serve_with_incoming(TcpIncoming::from(listener)));
    url
}

/// An Agent Registry with one release after another; the first `failures` calls say that it is down.
#[derive(Clone, Default)]
pub struct FakeRegistry {
    pub releases: Arc<Mutex<Vec<v1::LoadReleaseResponse>>>,
    pub failures: Arc<AtomicU32>,
    pub calls: Arc<AtomicU32>,
}

impl FakeRegistry {
    pub fn with(release_id: &str, document: &str) -> Self {
        let fake = Self::default();
        fake.add(release_id, document);
        fake
    }

    pub fn add(&self, release_id: &str, document: &str) {
        self.releases.lock().unwrap().push(v1::LoadReleaseResponse {
            release_id: release_id.to_owned(),
            document: document.to_owned(),
            ..Default::default()
        });
    }

    pub async fn start(&self) -> String {
        serve(tonic::service::Routes::new(AgentRegistryServer::new(self.clone()))).await
    }
}

#[tonic::async_trait]
impl AgentRegistry for FakeRegistry {
    async fn load_release(
        &self,
        request: Request<v1::LoadReleaseRequest>,
    ) -> Result<Response<v1::LoadReleaseResponse>, Status> {
        self.calls.fetch_add(1, Ordering::SeqCst);
        if self.failures.load(Ordering::SeqCst) > 0 {
            self.failures.fetch_sub(1, Ordering::SeqCst);
            return Err(Status::unavailable("down"));
        }
        let wanted = request.into_inner().release_id;
        let releases = self.releases.lock().unwrap();
        let found = releases.iter().find(|r| r.release_id == wanted).cloned();
        found.map(Response::new).ok_or_else(|| Status::not_found("no such release"))
    }
}

/// A Policy Engine that denies one class.
#[derive(Clone, Default)]
pub struct FakePolicy {
    pub denied: Arc<Mutex<String>>,
    pub asked: Arc<Mutex<Vec<v1::CheckActionClassesRequest>>>,
}

impl FakePolicy {
    pub async fn start(&self) -> String {
        serve(tonic::service::Routes::new(PolicyEngineServer::new(self.clone()))).await
    }
}

#[tonic::async_trait]
impl PolicyEngine for FakePolicy {
    async fn check_action_classes(
        &self,
        request: Request<v1::CheckActionClassesRequest>,
    ) -> Result<Response<v1::CheckActionClassesResponse>, Status> {
        let request = request.into_inner();
        self.asked.lock().unwrap().push(request.clone());
        let denied = self.denied.lock().unwrap().clone();
        let of_class = request.steps.into_iter().filter(|s| s.action_class == denied);
        let denials: Vec<_> =
            of_class.map(|s| v1::Denial { step_id: s.step_id, reason: "not on a Friday".into() }).collect();
        Ok(Response::new(v1::CheckActionClassesResponse { allowed: denials.is_empty(), denials }))
    }
}

/// Run Control's journal.
#[derive(Clone, Default)]
pub struct FakeJournal {
    pub facts: Arc<Mutex<Vec<v1::JournalEntry>>>,
    pub down: Arc<Mutex<bool>>,
}

impl FakeJournal {
    pub async fn start(&self) -> String {
        serve(tonic::service::Routes::new(RunControlJournalServer::new(self.clone()))).await
    }
}

#[tonic::async_trait]
impl RunControlJournal for FakeJournal {
    async fn read_facts(
        &self,
        request: Request<v1::ReadFactsRequest>,
    ) -> Result<Response<v1::ReadFactsResponse>, Status> {
        if *self.down.lock().unwrap() {
            return Err(Status::unavailable("down"));
        }
        let request = request.into_inner();
        let facts = self.facts.lock().unwrap();
        let page = facts.iter().filter(|f| f.sequence > request.after).take(request.page_size.min(2) as usize);
        Ok(Response::new(v1::ReadFactsResponse { facts: page.cloned().collect() }))
    }
}
