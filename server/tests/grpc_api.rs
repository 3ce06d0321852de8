//! The gRPC API from outside: reflection, health, limits, tenants, watches, events, workers.
#![allow(clippy::unwrap_used)]

mod common;

use common::{ASK, ECHO, HUMAN, PATIENCE, TestNode, code, field, of, start, start_with, step, worker};
use granary_proto::v1;
use granary_proto::v1::subscribe_events_request::Request as Ask;
use granary_proto::v1::workflow_engine_client::WorkflowEngineClient;
use granary_proto::wire::Json;
use prost::Message as _;
use prost_types::FileDescriptorSet;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Code;
use tonic_reflection::pb::v1::server_reflection_client::ServerReflectionClient;
use tonic_reflection::pb::v1::server_reflection_request::MessageRequest;
use tonic_reflection::pb::v1::server_reflection_response::MessageResponse;

/// The services that a node offers its clients, by the descriptors: all of the public package but those that it asks itself.
fn offered() -> Vec<String> {
    let set = FileDescriptorSet::decode(granary_proto::DESCRIPTORS).unwrap();
    let public =
        set.file.iter().filter(|file| file.package() == "granary.v1" && !file.name().ends_with("/outside.proto"));
    let names: Vec<String> =
        public.flat_map(|file| &file.service).map(|service| format!("granary.v1.{}", service.name())).collect();
    assert!(names.len() >= 5, "{names:?}");
    names
}

/// Reflection names every service of this node, and none that is not served here.
#[tokio::test]
async fn reflection_lists_every_service() {
    let node = start().await;
    let ask = tonic_reflection::pb::v1::ServerReflectionRequest {
        host: String::new(),
        message_request: Some(MessageRequest::ListServices(String::new())),
    };
    let mut client = ServerReflectionClient::new(node.channel().await);
    let mut answers = client.server_reflection_info(tokio_stream::once(ask)).await.unwrap().into_inner();
    let answer = answers.message().await.unwrap().unwrap().message_response.unwrap();
    let MessageResponse::ListServicesResponse(list) = answer else { panic!("{answer:?}") };
    let mut names: Vec<String> = list.service.into_iter().map(|s| s.name).collect();
    names.sort_unstable();
    let mut wanted = offered();
    wanted.push("grpc.health.v1.Health".to_owned());
    wanted.sort_unstable();
    assert_eq!(names, wanted);
}

/// [P6] The standard health service says what the probes say, of the whole and of every service.
#[tokio::test]
async fn the_health_service_serves() {
    let node = start().await;
    let mut client = tonic_health::pb::health_client::HealthClient::new(node.channel().await);
    for service in offered().into_iter().chain([String::new()]) {
        let watch = tonic_health::pb::HealthCheckRequest { service: service.clone() };
        let mut states = client.watch(watch).await.unwrap().into_inner();
        let serving = async {
            while let Some(state) = states.message().await.unwrap() {
                if state.status == tonic_health::ServingStatus::Serving as i32 {
                    return;
                }
            }
            panic!("the watch ended");
        };
        tokio::time::timeout(PATIENCE, serving).await.unwrap_or_else(|_| panic!("{service:?} is not served"));
    }
}

/// FR-190: the same limit on every method, unary and stream; over it the limit is said and the connection goes on.
#[tokio::test]
async fn the_message_limit_is_the_same_everywhere() {
    let node = start().await;
    let channel = node.channel().await;
    let huge = "x".repeat(5 << 20);
    let limit = (4 << 20).to_string();
    let over = |status: tonic::Status| {
        assert_eq!(status.code(), Code::OutOfRange, "{status:?}");
        assert!(status.message().contains(&limit), "{status:?}");
    };
    let mut runs = v1::run_control_client::RunControlClient::new(channel.clone());
    over(runs.get_run(v1::GetRunRequest { run_id: huge.clone() }).await.unwrap_err());
    let submit = v1::SubmitRunRequest { input: Some(Json::new(huge.clone())), ..Default::default() };
    over(runs.submit_run(submit).await.unwrap_err());
    over(runs.watch_run(v1::WatchRunRequest { run_id: huge.clone() }).await.unwrap_err());
    let mut engine = WorkflowEngineClient::new(channel.clone());
    let validate = v1::ValidateWorkflowDefinitionRequest { document: huge.clone(), ..Default::default() };
    over(engine.validate_workflow_definition(validate).await.unwrap_err());
    let ask = v1::SubscribeEventsRequest { request: Some(Ask::Acknowledge(huge.clone())) };
    let mut events = engine.subscribe_events(tokio_stream::once(ask)).await.unwrap().into_inner();
    over(events.message().await.unwrap_err());
    let hello = v1::Hello { worker_id: huge, ..Default::default() };
    let hello = v1::WorkerMessage { message: Some(v1::worker_message::Message::Hello(hello)) };
    let mut workers = v1::workers_client::WorkersClient::new(channel);
    let mut session = workers.session(tokio_stream::once(hello)).await.unwrap().into_inner();
    over(session.message().await.unwrap_err());
    // The connection is as good as before.
    let unknown = runs.get_run(v1::GetRunRequest { run_id: uuid::Uuid::now_v7().to_string() }).await.unwrap_err();
    assert_eq!((unknown.code(), code(&unknown).as_str()), (Code::NotFound, "not-found"));
}

/// [P2] FR-007, FR-077, FR-150: another tenant's things are not there, whatever ids one knows.
#[tokio::test]
async fn tenants_do_not_see_each_other() {
    let node = start().await;
    let release = node.publish_as("a", HUMAN).await;
    let submit = |tenant: &str| {
        of(
            tenant,
            v1::SubmitRunRequest {
                client_key: "r1".into(),
                definition_release_id: release.clone(),
                ..Default::default()
            },
        )
    };
    let mut runs = node.runs().await;
    let ours = runs.submit_run(submit("a")).await.unwrap().into_inner().run.unwrap();
    let refused = runs.submit_run(submit("b")).await.unwrap_err();
    assert_eq!(code(&refused), "not-found", "b has no such release: {refused:?}");

    let run_id = ours.run_id.clone();
    let graph = node.until_as("a", &run_id, |g| g.state == "WaitingForHuman").await;
    let approval_id = step(&graph, "approve").approval_id.clone();
    let is_hidden = |answer: Result<(), tonic::Status>, what: &str| {
        let status = answer.expect_err(what);
        assert_eq!(status.code(), Code::NotFound, "{what}: {status:?}");
    };
    let get = v1::GetRunRequest { run_id: run_id.clone() };
    is_hidden(runs.get_run(of("b", get.clone())).await.map(drop), "get");
    let cancel = v1::CancelRunRequest { run_id: run_id.clone(), ..Default::default() };
    is_hidden(runs.cancel_run(of("b", cancel)).await.map(drop), "cancel");
    let journal = v1::ReadJournalRequest { run_id: run_id.clone(), ..Default::default() };
    is_hidden(runs.read_journal(of("b", journal)).await.map(drop), "journal");
    let watch = v1::WatchRunRequest { run_id: run_id.clone() };
    is_hidden(runs.watch_run(of("b", watch)).await.map(drop), "watch");
    let decide = v1::DecideApprovalRequest {
        approval_id: approval_id.clone(),
        decision: "approve".into(),
        proposal_version: 1,
        ..Default::default()
    };
    is_hidden(runs.decide_approval(of("b", decide.clone())).await.map(drop), "decide");
    let with_run = v1::DecideApprovalRequest { run_id: run_id.clone(), ..decide };
    is_hidden(runs.decide_approval(of("b", with_run)).await.map(drop), "decide with the run's id");
    let mut engine = node.engine().await;
    let graph = v1::GetRunGraphRequest { run_id: run_id.clone(), ..Default::default() };
    is_hidden(engine.get_run_graph(of("b", graph)).await.map(drop), "graph");
    let versions = v1::ListWorkflowDefinitionVersionsRequest { definition_id: "human".into() };
    is_hidden(engine.list_workflow_definition_versions(of("b", versions)).await.map(drop), "versions");
    let list = runs.list_runs(of("b", v1::ListRunsRequest::default())).await.unwrap().into_inner();
    assert!(list.runs.is_empty());
    let approvals = runs.list_approvals(of("b", v1::ListApprovalsRequest::default())).await.unwrap().into_inner();
    assert!(approvals.approvals.is_empty());
    let still = runs.get_run(of("a", get)).await.unwrap().into_inner();
    assert_eq!(still.state, "WaitingForApproval");

    let named = v1::ValidateWorkflowDefinitionRequest {
        document: format!("tenant: b\n{}", HUMAN.trim_start()),
        ..Default::default()
    };
    let answer = engine.validate_workflow_definition(of("a", named)).await.unwrap().into_inner();
    assert!(!answer.valid, "a tenant in the document is an unknown key");
}

/// Outside of development mode a header does not choose the tenant, and drafts are not taken.
#[tokio::test]
async fn development_mode_is_what_allows_tenants_by_header_and_drafts() {
    let node = start_with(|config| config.development = false).await;
    let refused = node.runs().await.list_runs(of("acme", v1::ListRunsRequest::default())).await.unwrap_err();
    assert_eq!((refused.code(), field(&refused).as_str()), (Code::PermissionDenied, "x-granary-tenant"));
    let draft = v1::LoadWorkflowDefinitionRequest { document: ECHO.into(), draft: true, ..Default::default() };
    let refused = node.engine().await.load_workflow_definition(draft).await.unwrap_err();
    assert_eq!(code(&refused), "denied");
    node.publish(ECHO).await;
}

/// [R13] [C2] A watch shows each state, ends with the run, and an old run's watch shows its end at once.
#[tokio::test]
async fn a_watch_ends_with_its_run() {
    let node = start().await;
    let release = node.publish(ECHO).await;
    let run = node.submit(&release, serde_json::json!({ "n": 1 })).await;
    let graph = node.until(&run.run_id, |g| !g.step_runs.is_empty()).await;
    let waiting = step(&graph, "echo").waiting.clone().unwrap();
    assert_eq!((waiting.on.as_str(), waiting.queue.as_str()), ("worker", "tool:echo"));
    let _worker = worker::echo(node.channel().await, "default", &["tool:echo"]).await;
    let done = node.until_state(&run.run_id, "Completed").await;
    assert_eq!(step(&done, "echo").output, Some(Json::new(r#"{"n":1}"#)));
    let mut client = node.runs().await;
    let mut again = client.watch_run(v1::WatchRunRequest { run_id: run.run_id }).await.unwrap().into_inner();
    assert_eq!(again.message().await.unwrap().unwrap().state, "Completed");
    assert!(again.message().await.unwrap().is_none());
}

struct Events {
    tell: mpsc::Sender<v1::SubscribeEventsRequest>,
    answers: tonic::Streaming<v1::SubscribeEventsResponse>,
    seen: std::collections::VecDeque<v1::EventEnvelope>,
}

impl Events {
    async fn subscribe(node: &TestNode, subscribe: v1::Subscribe) -> Self {
        let (tell, asks) = mpsc::channel(8);
        tell.send(v1::SubscribeEventsRequest { request: Some(Ask::Subscribe(subscribe)) }).await.unwrap();
        let answers = node.engine().await.subscribe_events(ReceiverStream::new(asks)).await.unwrap().into_inner();
        Self { tell, answers, seen: Default::default() }
    }

    async fn next(&mut self) -> v1::EventEnvelope {
        while self.seen.is_empty() {
            let message = tokio::time::timeout(PATIENCE, self.answers.message()).await.expect("in time");
            self.seen.extend(message.unwrap().expect("the stream goes on").events);
        }
        self.seen.pop_front().unwrap()
    }

    async fn acknowledge(&self, event: &v1::EventEnvelope) {
        let request = Some(Ask::Acknowledge(event.cursor.clone()));
        self.tell.send(v1::SubscribeEventsRequest { request }).await.unwrap();
    }
}

/// [V1] [V2] Nine types in their envelopes, in order per run; a filter sees only its types.
#[tokio::test]
async fn events_of_a_run_come_in_order_without_a_gap() {
    let node = start().await;
    let _worker = worker::echo(node.channel().await, "default", &["tool:echo"]).await;
    let release = node.publish(ECHO).await;
    let run = node.submit(&release, serde_json::json!(1)).await;
    let from_the_start = v1::Subscribe { from: "earliest".into(), run_id: run.run_id.clone(), ..Default::default() };
    let mut events = Events::subscribe(&node, from_the_start).await;
    let mut all = Vec::new();
    while all.last().is_none_or(|e: &v1::EventEnvelope| !e.r#type.ends_with("workflow-run-completed")) {
        all.push(events.next().await);
    }
    let numbers: Vec<u64> = all.iter().map(|e| e.sequence).collect();
    assert_eq!(numbers, (1..=all.len() as u64).collect::<Vec<_>>());
    assert_eq!(all[0].r#type, "workflows.runs.v1.workflow-run-started");
    assert!(all.iter().all(|e| e.subject == run.run_id && e.id == format!("{}.{}", run.run_id, e.sequence)));
    let ready = all.iter().find(|e| e.r#type.ends_with("step-ready")).unwrap();
    let data = ready.data.as_ref().unwrap().value().unwrap();
    assert_eq!((&data["stepId"], &data["kind"]), (&"echo".into(), &"Tool".into()));

    let filter = v1::Subscribe {
        from: "earliest".into(),
        types: vec!["workflow-definition-loaded".into()],
        ..Default::default()
    };
    let loaded = Events::subscribe(&node, filter).await.next().await;
    assert_eq!(loaded.data.unwrap().value().unwrap()["releaseId"], release);
}

/// [V2] A named cursor goes on behind what was acknowledged; what was not comes again with the same id.
#[tokio::test]
async fn a_named_cursor_goes_on_where_it_was_acknowledged() {
    let node = start().await;
    let release = node.publish(HUMAN).await;
    for n in 0..3 {
        node.submit(&release, serde_json::json!(n)).await;
    }
    let subscribe = || v1::Subscribe {
        cursor_name: "billing".into(),
        types: vec!["workflow-run-started".into()],
        ..Default::default()
    };
    let mut first = Events::subscribe(&node, subscribe()).await;
    let (one, two, three) = (first.next().await, first.next().await, first.next().await);
    first.acknowledge(&two).await;
    drop(first);
    let mut second = Events::subscribe(&node, subscribe()).await;
    // The acknowledgement may not have been read before the stream broke off: then more comes again, never less.
    let mut again = vec![second.next().await];
    while again.last().is_some_and(|e| e.id != three.id) {
        again.push(second.next().await);
    }
    let known = [&one.id, &two.id, &three.id];
    assert!(again.iter().all(|e| known.contains(&&e.id)), "{again:?}");
    second.acknowledge(again.last().unwrap()).await;
    let run = node.submit(&release, serde_json::json!(3)).await;
    assert_eq!(second.next().await.subject, run.run_id);
}

/// [C3] [R8] A worker and a person carry a run to its end over gRPC alone; the token of another lease is refused.
#[tokio::test]
async fn a_report_with_another_token_is_refused_and_the_right_one_is_taken() {
    use v1::server_message::Message as Out;
    use v1::worker_message::Message as In;
    let node = start().await;
    let release = node.publish(ASK).await;
    let (tell, asks) = mpsc::channel(8);
    let say = async |message: In| tell.send(v1::WorkerMessage { message: Some(message) }).await.unwrap();
    say(In::Hello(v1::Hello {
        worker_id: uuid::Uuid::new_v4().to_string(),
        queues: vec!["tool:echo".into()],
        capacity: 1,
        held: Vec::new(),
        session: 0,
    }))
    .await;
    let mut workers = v1::workers_client::WorkersClient::new(node.channel().await);
    let mut answers = workers.session(ReceiverStream::new(asks)).await.unwrap().into_inner();
    let mut next = async || {
        let message = tokio::time::timeout(PATIENCE, answers.message()).await.expect("in time").unwrap().unwrap();
        message.message.unwrap()
    };
    assert!(matches!(next().await, Out::Welcome(w) if w.lease_ms == 45_000 && w.renew_ms == 15_000));
    let run = node.submit(&release, serde_json::json!({ "a": 1 })).await;
    let Out::Assignments(assigned) = next().await else { panic!("an assignment") };
    let assignment = &assigned.assignments[0];
    assert_eq!(assignment.lease_token.len(), 16, "the token is filled in");
    let report = |token: Vec<u8>, output: &str| v1::Report {
        attempt_id: assignment.attempt_id.clone(),
        run_id: run.run_id.clone(),
        lease_token: token,
        outcome: "Succeeded".into(),
        output: Some(Json::new(output)),
        ..Default::default()
    };
    let right = assignment.lease_token.clone();
    say(In::Renew(v1::Renew { attempt_ids: vec![assignment.attempt_id.clone()] })).await;
    assert!(matches!(next().await, Out::RenewResult(r) if r.lost.is_empty()));
    say(In::Reports(v1::Reports { reports: vec![report(vec![9; 16], "1")] })).await;
    let Out::ReportResults(refused) = next().await else { panic!("a result") };
    assert_eq!((refused.results[0].accepted, refused.results[0].code.as_str()), (false, "stale-token"));
    say(In::Reports(v1::Reports { reports: vec![report(right.clone(), "1"), report(right.clone(), "1")] })).await;
    let mut results = Vec::new();
    while results.len() < 2 {
        if let Out::ReportResults(more) = next().await {
            results.extend(more.results);
        }
    }
    assert!(results.iter().all(|r| r.accepted), "the same report twice is the same answer: {results:?}");
    say(In::Reports(v1::Reports { reports: vec![report(right, "2")] })).await;
    let Out::ReportResults(other) = next().await else { panic!("a result") };
    assert!(!other.results[0].accepted && !other.results[0].retry, "{other:?}");
    node.until_state(&run.run_id, "WaitingForHuman").await;
}

/// FR-125: an output that cannot be kept fails the attempt, and the run goes its way by the step's policy.
#[tokio::test]
async fn an_output_above_the_limit_fails_the_step() {
    let node = start().await;
    let huge = format!("\"{}\"", "x".repeat(1 << 20));
    let _worker = worker::start(node.channel().await, "default", &["tool:echo"], move |_| {
        worker::succeeded(Json::new(huge.clone()))
    })
    .await;
    let release = node.publish(ECHO).await;
    let run = node.submit(&release, serde_json::json!(1)).await;
    let graph = node.until_state(&run.run_id, "Failed").await;
    assert!(graph.failure.is_some_and(|f| f.message.contains("1048578")), "both numbers are said");
}

/// FR-192: a graph too large for one message comes in pages, each below the limit.
#[tokio::test]
async fn a_large_graph_comes_in_pages() {
    let node = start_with(|config| config.workflows.engine.max_fanout = 64).await;
    let half = format!("\"{}\"", "y".repeat(512 * 1024));
    let _worker = worker::start(node.channel().await, "default", &["tool:big"], move |_| {
        worker::succeeded(Json::new(half.clone()))
    })
    .await;
    let document = r#"
workflow: wide
version: 1.0.0
input: builtin:any
output: builtin:any
steps:
  - { id: split, kind: Fanout, items: { var: input } }
  - { id: work, kind: Tool, tool: big, actionClass: read, failurePolicy: Fail }
  - { id: collect, kind: Join, quorum: 1, losers: keep }
  - { id: approve, kind: Human, actionClass: read, failurePolicy: Fail }
edges:
  - { from: split, to: work }
  - { from: work, to: collect }
  - { from: collect, to: approve }
"#;
    let release = node.publish(document).await;
    let run = node.submit(&release, serde_json::json!((0..12).collect::<Vec<_>>())).await;
    let mut client = node.engine().await.max_decoding_message_size(4 << 20);
    // The human keeps the run open, so that the late branches are recorded too.
    let whole = async {
        loop {
            let (mut seen, mut token, mut done) = (0, String::new(), 0);
            loop {
                let ask = v1::GetRunGraphRequest { run_id: run.run_id.clone(), page_token: token, page_size: 500 };
                let page = client.get_run_graph(ask).await.unwrap().into_inner();
                seen += page.step_runs.len();
                done += page.step_runs.iter().filter(|s| s.step_id == "work" && s.output.is_some()).count();
                token = page.next_page_token;
                if token.is_empty() {
                    break;
                }
            }
            if done == 12 {
                return seen;
            }
            tokio::task::yield_now().await;
        }
    };
    let seen = tokio::time::timeout(PATIENCE, whole).await.expect("in time");
    assert!(seen >= 13, "{seen}");
}
