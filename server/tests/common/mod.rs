//! An embedded node on a free port, and clients of it.
#![allow(dead_code, clippy::unwrap_used)]

pub mod fakes;
pub mod process;
pub mod worker;

use granary::config::Config;
use granary::node::{Granary, Node};
use granary_proto::v1;
use granary_proto::v1::run_control_client::RunControlClient;
use granary_proto::v1::workflow_engine_client::WorkflowEngineClient;
use granary_proto::wire::Json;
use std::path::Path;
use std::time::Duration;
use tonic::transport::Channel;

/// Anything that is waited for in a test has come by then, or never will.
pub const PATIENCE: Duration = Duration::from_secs(30);

pub struct TestNode {
    pub node: Node,
    pub dir: tempfile::TempDir,
}

pub fn config(folder: &Path) -> Config {
    let mut config = Config::development(folder);
    config.listen = "127.0.0.1:0".parse().unwrap();
    config.shards = 2;
    config.store.segment_mebibytes = 4;
    config.store.cache_mebibytes = 8;
    config.drain_seconds = 10;
    config
}

pub async fn start() -> TestNode {
    start_with(|_| {}).await
}

pub async fn start_with(change: impl FnOnce(&mut Config)) -> TestNode {
    let dir = tempfile::tempdir().unwrap();
    let mut config = config(dir.path());
    change(&mut config);
    let node = Granary::start(config).await.unwrap();
    node.ready(PATIENCE).await.unwrap();
    TestNode { node, dir }
}

impl TestNode {
    pub fn url(&self, path: &str) -> String {
        format!("{}{path}", self.node.url())
    }

    pub async fn channel(&self) -> Channel {
        Channel::from_shared(self.node.url()).unwrap().connect().await.unwrap()
    }

    pub async fn runs(&self) -> RunControlClient<Channel> {
        RunControlClient::new(self.channel().await).max_decoding_message_size(64 << 20)
    }

    pub async fn engine(&self) -> WorkflowEngineClient<Channel> {
        WorkflowEngineClient::new(self.channel().await).max_decoding_message_size(64 << 20)
    }

    /// Publishes a definition and gives its release id.
    pub async fn publish(&self, document: &str) -> String {
        self.publish_as("default", document).await
    }

    pub async fn publish_as(&self, tenant: &str, document: &str) -> String {
        let request = v1::LoadWorkflowDefinitionRequest { document: document.to_owned(), ..Default::default() };
        let loaded = self.engine().await.load_workflow_definition(of(tenant, request)).await.unwrap().into_inner();
        assert!(loaded.loaded, "{:#?}", loaded.findings);
        loaded.version.unwrap().release_id
    }

    pub async fn submit(&self, release: &str, input: serde_json::Value) -> v1::Run {
        let request = v1::SubmitRunRequest {
            definition_release_id: release.to_owned(),
            input: Some(Json::of(&input)),
            ..Default::default()
        };
        self.runs().await.submit_run(request).await.unwrap().into_inner().run.unwrap()
    }

    /// Follows a run until its graph is as wanted.
    pub async fn until(&self, run_id: &str, wanted: impl Fn(&v1::RunGraph) -> bool) -> v1::RunGraph {
        self.until_as("default", run_id, wanted).await
    }

    pub async fn until_as(&self, tenant: &str, run_id: &str, wanted: impl Fn(&v1::RunGraph) -> bool) -> v1::RunGraph {
        let mut client = self.runs().await;
        let request = v1::WatchRunRequest { run_id: run_id.to_owned() };
        let follow = async {
            let mut graphs = client.watch_run(of(tenant, request)).await.unwrap().into_inner();
            let mut last = None;
            while let Some(graph) = graphs.message().await.unwrap() {
                if wanted(&graph) {
                    return graph;
                }
                last = Some(graph);
            }
            panic!("the run ended otherwise: {last:#?}");
        };
        tokio::time::timeout(PATIENCE, follow).await.expect("in time")
    }

    pub async fn until_state(&self, run_id: &str, state: &str) -> v1::RunGraph {
        self.until(run_id, |graph| graph.state == state).await
    }
}

/// A request of a tenant.
pub fn of<T>(tenant: &str, message: T) -> tonic::Request<T> {
    let mut request = tonic::Request::new(message);
    request.metadata_mut().insert("x-granary-tenant", tenant.parse().unwrap());
    request
}

/// The stable code that a refusal carries.
pub fn code(status: &tonic::Status) -> String {
    status.metadata().get("x-granary-code").map(|v| v.to_str().unwrap().to_owned()).unwrap_or_default()
}

/// The field that a refusal names.
pub fn field(status: &tonic::Status) -> String {
    status.metadata().get("x-granary-field").map(|v| v.to_str().unwrap().to_owned()).unwrap_or_default()
}

pub fn step<'a>(graph: &'a v1::RunGraph, id: &str) -> &'a v1::StepRun {
    graph.step_runs.iter().find(|s| s.step_id == id).unwrap_or_else(|| panic!("no step {id} in {graph:#?}"))
}

/// One Tool step, then a human.
pub const ASK: &str = r#"
workflow: ask
version: 1.0.0
input: builtin:any
output: builtin:any
steps:
  - { id: look, kind: Tool, tool: echo, actionClass: read, failurePolicy: Fail }
  - { id: approve, kind: Human, actionClass: shared-write, failurePolicy: Fail }
edges:
  - { from: look, to: approve }
"#;

/// One Tool step.
pub const ECHO: &str = r#"
workflow: echo
version: 1.0.0
input: builtin:any
output: builtin:any
steps:
  - { id: echo, kind: Tool, tool: echo, actionClass: read, failurePolicy: Fail }
edges: []
"#;

/// A human alone: waits without a worker.
pub const HUMAN: &str = r#"
workflow: human
version: 1.0.0
input: builtin:any
output: builtin:any
steps:
  - { id: approve, kind: Human, actionClass: read, failurePolicy: Fail }
edges: []
"#;
