//! Skills and ordered workflows from outside: load, look up, invoke, observe.
#![allow(clippy::unwrap_used)]

mod common;

use common::{TestNode, code, of, start, start_with, step, worker};
use granary_proto::v1;
use granary_proto::v1::skills_client::SkillsClient;
use granary_proto::wire::Json;
use reqwest::{Client, StatusCode};
use serde_json::{Value, json};
use tonic::transport::Channel;

const TWO_CALLS: &str = "
skill: say-twice
version: 1
kind: flow-template
parameters:
  word: { type: string, required: true }
steps:
  - { id: first, tool: echo, actionClass: read, arguments: { said: 'one {{word}}' } }
  - { id: second, tool: echo, actionClass: read, arguments: { said: '{{word}}' } }
";

const LIST: &str = "
workflow: list
version: 1
input: builtin:any
output: builtin:any
steps:
  - { id: say, kind: SkillInvocation, skill: SKILL, arguments: { word: { var: input.word } } }
";

async fn skills(node: &TestNode) -> SkillsClient<Channel> {
    SkillsClient::new(node.channel().await)
}

async fn load(node: &TestNode, tenant: &str, document: &str) -> Result<v1::LoadSkillResponse, tonic::Status> {
    let request = v1::LoadSkillRequest { document: document.to_owned() };
    skills(node).await.load_skill(of(tenant, request)).await.map(tonic::Response::into_inner)
}

async fn run(node: &TestNode, skill: &str, input: Value) -> String {
    let release =
        node.publish(&LIST.replace("SKILL", skill).replace("workflow: list", &format!("workflow: list-{skill}"))).await;
    node.submit(&release, input).await.run_id
}

/// [O2] A version is loaded once, its content is for ever, and another tenant's skills are not there.
#[tokio::test]
async fn a_version_of_a_skill_has_one_content() {
    let node = start().await;
    let first = load(&node, "default", TWO_CALLS).await.unwrap();
    assert!(first.loaded && !first.repeated, "{first:?}");
    let again = load(&node, "default", TWO_CALLS).await.unwrap();
    assert!(again.loaded && again.repeated);
    assert_eq!(again.skill, first.skill, "with the time of the first load");
    let other = load(&node, "default", &TWO_CALLS.replace("one {{word}}", "two {{word}}")).await.unwrap_err();
    assert_eq!(code(&other), "conflict");
    let faulty = load(&node, "default", "skill: a\nversion: 1\nkind: flow-template\nsteps: []\n").await.unwrap();
    assert!(!faulty.loaded && faulty.findings.iter().any(|finding| finding.path == "steps"), "{faulty:?}");

    let newer = load(&node, "default", &TWO_CALLS.replace("version: 1", "version: 2")).await.unwrap();
    let listed = skills(&node).await.list_skills(v1::ListSkillsRequest::default()).await.unwrap().into_inner().skills;
    assert_eq!(listed, [newer.skill.unwrap()], "the newest of each");
    let request = v1::GetSkillRequest { name: "say-twice".into(), version: "1".into() };
    let one = skills(&node).await.get_skill(request.clone()).await.unwrap().into_inner();
    assert_eq!(one.document.unwrap().value().unwrap()["steps"][1]["id"], "second");
    let theirs = skills(&node).await.get_skill(of("other", request)).await.unwrap_err();
    assert_eq!(code(&theirs), "not-found");
}

/// [O2] The same over HTTP.
#[tokio::test]
async fn skills_over_http() {
    let node = start().await;
    let post = |body: &'static str| Client::new().post(node.url("/runtime/skills")).body(body).send();
    let loaded = post(TWO_CALLS).await.unwrap();
    assert_eq!(loaded.status(), StatusCode::CREATED);
    assert_eq!(post(TWO_CALLS).await.unwrap().status(), StatusCode::OK);
    let refused = post("skill: a").await.unwrap();
    assert_eq!(refused.status(), StatusCode::UNPROCESSABLE_ENTITY);
    let found: Value =
        Client::new().get(node.url("/runtime/skills/say-twice")).send().await.unwrap().json().await.unwrap();
    assert_eq!(found["skill"]["parameters"][0]["name"], "word", "{found:#}");
    let versions = Client::new().get(node.url("/runtime/skills/say-twice/versions")).send().await.unwrap();
    assert_eq!(versions.json::<Value>().await.unwrap()["versions"][0]["version"], "1");
    let unknown = Client::new().get(node.url("/runtime/skills/nobody")).send().await.unwrap();
    assert_eq!(unknown.status(), StatusCode::NOT_FOUND);
}

/// [O2] [O4] Invoked by a workflow, with a real worker: the calls come in order, and the last one's output is the step's.
#[tokio::test]
async fn a_skill_is_invoked() {
    let node = start().await;
    load(&node, "default", TWO_CALLS).await.unwrap();
    let _worker = worker::echo(node.channel().await, "default", &["tool:echo"]).await;
    let graph = node.until_state(&run(&node, "say-twice", json!({"word": "hello"})).await, "Completed").await;
    let say = step(&graph, "say");
    assert_eq!((say.kind.as_str(), say.state.as_str()), ("SkillInvocation", "Succeeded"));
    assert_eq!(say.output.as_ref().unwrap().value().unwrap(), json!({"said": "hello"}));
}

/// [O2] [O4] What is missing, and what cannot be run, fails the step with its reason; no call is made (there is no worker).
#[tokio::test]
async fn an_invocation_that_cannot_be_fails_with_its_reason() {
    let node = start().await;
    load(&node, "default", TWO_CALLS).await.unwrap();
    load(&node, "default", "skill: swipe\nversion: 1\nkind: learned-policy\n").await.unwrap();
    for (skill, input, class) in [
        ("say-twice", json!({}), "missing-parameter"),
        ("say-twice", json!({"word": 5}), "wrong-argument"),
        ("swipe", json!({"word": "x"}), "step-definition"),
        ("nobody", json!({"word": "x"}), "step-definition"),
    ] {
        let graph = node.until_state(&run(&node, skill, input).await, "Failed").await;
        assert_eq!(graph.failure.unwrap().class, class, "{skill}");
    }
}

/// [O3] Somebody tells what is seen, and what waits for it looks at once. A kind that workers serve asks them.
#[tokio::test]
async fn waiting_ends_by_an_observation_or_by_a_worker() {
    let node = start_with(|config| config.workflows.condition_kinds.served = vec!["looks-good".into()]).await;
    let release = node
        .publish(
            "
workflow: waits
version: 1
input: builtin:any
output: builtin:any
steps:
  - { id: seen, kind: WaitForCondition, condition: { kind: scene_contains_text, text: Inbox }, timeout: 1h }
  - { id: good, kind: WaitForCondition, condition: { kind: looks-good, much: true }, timeout: 1h, pollInterval: 100ms }
",
        )
        .await;
    let run_id = node.submit(&release, json!({})).await.run_id;
    let observe = |kind: &str, value: Value| v1::ObserveRequest {
        run_id: run_id.clone(),
        kind: kind.to_owned(),
        value: Some(Json::of(&value)),
    };
    let mut runs = node.runs().await;
    let wrong = runs.observe(observe("smell", json!("smoke"))).await.unwrap_err();
    assert_eq!(code(&wrong), "invalid");
    runs.observe(observe("scene", json!({"title": "Home"}))).await.unwrap();
    let graph = node.until(&run_id, |graph| step(graph, "seen").state == "WaitingForTimer").await;
    assert_eq!(graph.state, "WaitingForTimer");
    let over_http = Client::new().post(node.url(&format!("/runs/{run_id}/observations")));
    let told = over_http.json(&json!({"kind": "scene", "value": {"title": "Inbox"}})).send().await.unwrap();
    assert_eq!(told.status(), StatusCode::OK);
    node.until(&run_id, |graph| graph.step_runs.iter().any(|s| s.step_id == "good" && s.state == "Ready")).await;
    // The echo's output is its input, an object, which is true.
    let _worker = worker::echo(node.channel().await, "default", &["condition:looks-good"]).await;
    node.until_state(&run_id, "Completed").await;
}
