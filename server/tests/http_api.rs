//! The HTTP API from outside: each operation, and what is said to bad input.
#![allow(clippy::unwrap_used)]

mod common;

use common::{ASK, ECHO, HUMAN, TestNode, start, worker};
use reqwest::{Client, Method, StatusCode};
use serde_json::{Value, json};

async fn get(node: &TestNode, path: &str) -> (StatusCode, Value) {
    let response = Client::new().get(node.url(path)).send().await.unwrap();
    let status = response.status();
    (status, response.json().await.unwrap())
}

async fn post(node: &TestNode, path: &str, body: &Value) -> (StatusCode, Value) {
    let response = Client::new().post(node.url(path)).json(body).send().await.unwrap();
    let status = response.status();
    (status, response.json().await.unwrap())
}

async fn load(node: &TestNode, document: &str) -> Value {
    let request = Client::new().post(node.url("/runtime/workflow-definitions"));
    let request = request.header("content-type", "application/yaml").body(document.to_owned());
    let response = request.send().await.unwrap();
    let status = response.status();
    let body: Value = response.json().await.unwrap();
    assert_eq!(status, StatusCode::CREATED, "{body:#}");
    body
}

/// [C2] [D7] [R13] A run from its definition to its end, by HTTP alone.
#[tokio::test]
async fn a_run_goes_its_whole_way_over_http() {
    let node = start().await;
    let _worker = worker::echo(node.channel().await, "default", &["tool:echo"]).await;
    let loaded = load(&node, ASK).await;
    assert_eq!(loaded["version"]["releaseId"], "ask@1.0.0");
    let (_, versions) = get(&node, "/runtime/workflow-definitions/ask/versions").await;
    assert_eq!(versions["versions"][0]["graphHash"], loaded["version"]["graphHash"]);
    let (_, definitions) = get(&node, "/runtime/workflow-definitions").await;
    assert_eq!(definitions["definitions"][0]["definitionId"], "ask");

    let body = json!({ "definitionId": "ask", "input": { "repo": "x" }, "clientKey": "k-1" });
    let (status, first) = post(&node, "/runs", &body).await;
    assert_eq!(status, StatusCode::CREATED, "{first:#}");
    let run_id = first["run"]["runId"].as_str().unwrap().to_owned();
    let (status, again) = post(&node, "/runs", &body).await;
    assert_eq!((status, &again["run"]["runId"]), (StatusCode::OK, &first["run"]["runId"]));
    assert_eq!(again["repeated"], true);

    let graph = node.until(&run_id, |g| g.state == "WaitingForHuman").await;
    let (status, over_http) = get(&node, &format!("/runtime/workflow-runs/{run_id}")).await;
    assert_eq!(status, StatusCode::OK);
    assert_eq!(over_http["state"], "WaitingForHuman");
    assert_eq!(over_http["stepRuns"].as_array().unwrap().len(), graph.step_runs.len());

    let (_, waiting) = get(&node, "/runs?waitingOn=human").await;
    assert_eq!(waiting["runs"][0]["runId"], run_id.as_str(), "{waiting:#}");
    assert_eq!(waiting["runs"][0]["waiting"][0]["waiting"]["on"], "human");
    let (_, none) = get(&node, "/runs?waitingOn=worker").await;
    assert_eq!(none["runs"], json!([]));

    let (_, approvals) = get(&node, "/approvals").await;
    let approval = &approvals["approvals"][0];
    assert_eq!((&approval["runId"], &approval["state"]), (&json!(run_id), &json!("pending")), "{approvals:#}");
    let decision = format!("/approvals/{}/decision", approval["approvalId"].as_str().unwrap());
    let old = json!({ "decision": "approve", "proposalVersion": 99 });
    let (status, refused) = post(&node, &decision, &old).await;
    assert_eq!(status, StatusCode::CONFLICT, "{refused:#}");
    let right = json!({ "decision": "approve", "proposalVersion": approval["proposalVersion"], "comment": "fine" });
    let (status, decided) = post(&node, &decision, &right).await;
    assert_eq!((status, &decided["state"]), (StatusCode::OK, &json!("approved")), "{decided:#}");
    let (status, _) = post(&node, &decision, &right).await;
    assert_eq!(status, StatusCode::OK, "the same decision again is the same answer");

    node.until_state(&run_id, "Completed").await;
    let (_, run) = get(&node, &format!("/runs/{run_id}")).await;
    assert_eq!(run["state"], "Completed");
    let (_, journal) = get(&node, &format!("/runs/{run_id}/journal?pageSize=500")).await;
    let types: Vec<&str> = journal["entries"].as_array().unwrap().iter().map(|e| e["type"].as_str().unwrap()).collect();
    assert_eq!((types[0], *types.last().unwrap()), ("RunAccepted", "RunCompleted"), "{types:?}");
    let (_, by_state) = get(&node, "/runs?state=Completed&definitionId=ask").await;
    assert_eq!(by_state["runs"].as_array().unwrap().len(), 1);
    let (status, cancelled) = post(&node, &format!("/runs/{run_id}/cancel"), &json!({ "reason": "late" })).await;
    assert_eq!(status, StatusCode::CONFLICT, "{cancelled:#}");
}

/// [C2] The journal in pages that stand at every place, and the same whole.
#[tokio::test]
async fn the_journal_can_be_read_from_any_number_on() {
    let node = start().await;
    let _worker = worker::echo(node.channel().await, "default", &["tool:echo"]).await;
    load(&node, ECHO).await;
    let (_, run) = post(&node, "/runs", &json!({ "definitionId": "echo" })).await;
    let run_id = run["run"]["runId"].as_str().unwrap().to_owned();
    node.until_state(&run_id, "Completed").await;
    let (_, whole) = get(&node, &format!("/runs/{run_id}/journal")).await;
    let entries = whole["entries"].as_array().unwrap().clone();
    assert!(entries.len() >= 5, "{whole:#}");
    for after in 0..entries.len() {
        let (_, page) = get(&node, &format!("/runs/{run_id}/journal?after={after}&pageSize=2")).await;
        let wanted: Vec<Value> = entries.iter().skip(after).take(2).cloned().collect();
        assert_eq!(page["entries"], json!(wanted), "after {after}");
    }
}

/// [D5] Loading a release again answers with what is there, and does not say that it was made.
#[tokio::test]
async fn a_release_that_is_loaded_again_is_as_it_was() {
    let node = start().await;
    let first = load(&node, HUMAN).await;
    assert_eq!(first["repeated"], false);
    let request = Client::new().post(node.url("/runtime/workflow-definitions"));
    let request = request.header("content-type", "application/yaml").body(HUMAN);
    let response = request.send().await.unwrap();
    assert_eq!(response.status(), StatusCode::OK);
    let again: Value = response.json().await.unwrap();
    assert_eq!((&again["version"], &again["repeated"]), (&first["version"], &json!(true)), "{again:#}");
    let (_, versions) = get(&node, "/runtime/workflow-definitions/human/versions").await;
    assert_eq!(versions["versions"], json!([first["version"]]), "{versions:#}");
}

/// [C2] [R12]
#[tokio::test]
async fn a_cancelled_run_says_so_and_a_repeat_is_the_same_answer() {
    let node = start().await;
    load(&node, HUMAN).await;
    let (_, run) = post(&node, "/runs", &json!({ "definitionId": "human" })).await;
    let run_path = format!("/runs/{}", run["run"]["runId"].as_str().unwrap());
    let path = format!("{run_path}/cancel");
    let request = Client::new().post(node.url(&path)).header("x-granary-user", "ada");
    let response = request.json(&json!({ "reason": "no longer wanted" })).send().await.unwrap();
    let (status, first) = (response.status(), response.json::<Value>().await.unwrap());
    assert_eq!((status, &first["state"]), (StatusCode::OK, &json!("Cancelled")), "{first:#}");
    let (_, journal) = get(&node, &format!("{run_path}/journal")).await;
    let entries = journal["entries"].as_array().unwrap();
    let asked = entries.iter().find(|e| e["type"] == "RunCancelRequested").unwrap();
    assert_eq!((&asked["by"], &asked["text"]), (&json!("ada"), &json!("no longer wanted")), "{asked:#}");
    let (status, again) = post(&node, &path, &json!({ "reason": "no longer wanted" })).await;
    assert_eq!((status, &again["state"]), (StatusCode::OK, &json!("Cancelled")), "{again:#}");
    let (_, approvals) = get(&node, "/approvals").await;
    assert_eq!(approvals["approvals"], json!([]));
}

/// Every error is a problem document with a stable code (RFC 9457), and names the field where there is one.
#[tokio::test]
async fn every_refusal_is_a_problem_that_names_its_field() {
    let node = start().await;
    load(&node, HUMAN).await;
    let (_, run) = post(&node, "/runs", &json!({ "definitionId": "human" })).await;
    let run_id = run["run"]["runId"].as_str().unwrap();
    let unknown = "0190a3c4-7d1e-7f3a-9c55-2f6b8e0d4a11";
    let deep = format!(r#"{{"definitionId":"human","input":{}{}}}"#, "[".repeat(10_000), "]".repeat(10_000));
    let huge = format!(r#"{{"definitionId":"human","input":"{}"}}"#, "x".repeat(1024 * 1024));
    let owned = |text: &str| text.to_owned();
    // method, path, content type, body, status, code, field
    let cases: Vec<(Method, String, &str, String, u16, &str, &str)> = vec![
        (Method::GET, owned("/nowhere"), "", owned(""), 404, "not-found", ""),
        (Method::DELETE, owned("/runs"), "", owned(""), 405, "method-not-allowed", ""),
        (Method::GET, owned("/runs/7"), "", owned(""), 400, "invalid", "runId"),
        (Method::GET, owned("/runs/%ff"), "", owned(""), 400, "invalid", ""),
        (Method::GET, format!("/runs/{unknown}"), "", owned(""), 404, "not-found", "runId"),
        (Method::GET, format!("/runs/{unknown}/journal"), "", owned(""), 404, "not-found", "runId"),
        (Method::GET, format!("/runs/{run_id}/journal?after=x"), "", owned(""), 400, "invalid", "after"),
        (Method::GET, format!("/runtime/workflow-runs/{unknown}"), "", owned(""), 404, "not-found", "runId"),
        (Method::GET, owned("/runs?state=Runing"), "", owned(""), 400, "invalid", "state"),
        (
            Method::GET,
            format!("/runtime/workflow-runs/{run_id}?pageToken=x"),
            "",
            owned(""),
            400,
            "invalid",
            "pageToken",
        ),
        (
            Method::GET,
            format!("/runtime/workflow-runs/{run_id}?pageToken=9"),
            "",
            owned(""),
            400,
            "invalid",
            "pageToken",
        ),
        (Method::GET, format!("/approvals?runId={run_id}&pageToken=x"), "", owned(""), 400, "invalid", "pageToken"),
        (Method::POST, owned("/runs"), "application/json", owned(r#"["k","","human"]"#), 400, "invalid", ""),
        (Method::POST, owned("/runs"), "application/json", owned("null"), 400, "invalid", ""),
        (Method::POST, format!("/runs/{run_id}/cancel"), "application/json", owned(r#"["late"]"#), 400, "invalid", ""),
        (
            Method::POST,
            format!("/approvals/{unknown}/decision"),
            "application/json",
            owned(r#"["approve",1]"#),
            400,
            "invalid",
            "",
        ),
        (
            Method::POST,
            owned("/granary.v1.RunControl/GetRun"),
            "application/json",
            owned("{}"),
            415,
            "unsupported-media-type",
            "",
        ),
        (Method::GET, owned("/granary.v1.RunControl/GetRun"), "", owned(""), 415, "unsupported-media-type", ""),
        (Method::GET, owned("/runs?waitingOn=godot"), "", owned(""), 400, "invalid", "waitingOn"),
        (Method::GET, owned("/runs?acceptedAfter=noon"), "", owned(""), 400, "invalid", "acceptedAfter"),
        (Method::GET, owned("/runs?pageSize=-1"), "", owned(""), 400, "invalid", "pageSize"),
        (Method::GET, owned("/runs?pagesize=1"), "", owned(""), 400, "invalid", "pagesize"),
        (Method::GET, owned("/runs?pageToken=zzz"), "", owned(""), 400, "invalid", "*"),
        (Method::POST, owned("/runs"), "text/plain", owned("{}"), 415, "unsupported-media-type", ""),
        (Method::POST, owned("/runs"), "application/json", owned(""), 400, "invalid", ""),
        (Method::POST, owned("/runs"), "application/json", owned("{"), 400, "invalid", ""),
        (Method::POST, owned("/runs"), "application/json", owned("{}"), 400, "invalid", "definitionId"),
        (
            Method::POST,
            owned("/runs"),
            "application/json",
            owned(r#"{"definition":"x"}"#),
            400,
            "invalid",
            "definition",
        ),
        (
            Method::POST,
            owned("/runs"),
            "application/json",
            owned(r#"{"definitionId":7}"#),
            400,
            "invalid",
            "definitionId",
        ),
        (Method::POST, owned("/runs"), "application/json", owned(r#"{"definitionId":"no"}"#), 404, "not-found", "*"),
        (
            Method::POST,
            owned("/runs"),
            "application/json",
            owned(r#"{"definitionReleaseId":"no@1"}"#),
            404,
            "not-found",
            "*",
        ),
        (
            Method::POST,
            owned("/runs"),
            "application/json",
            owned(r#"{"definitionId":"human","version":"9"}"#),
            404,
            "not-found",
            "version",
        ),
        (
            Method::POST,
            owned("/runs"),
            "application/json",
            owned(r#"{"definitionId":"human","runId":"x"}"#),
            400,
            "invalid",
            "runId",
        ),
        (
            Method::POST,
            owned("/runs"),
            "application/json",
            owned(r#"{"definitionId":"human","variables":[1]}"#),
            400,
            "invalid",
            "variables",
        ),
        (Method::POST, owned("/runs"), "application/json", deep, 400, "invalid", ""),
        (Method::POST, owned("/runs"), "application/json", huge, 413, "too-large", "input"),
        (Method::POST, owned("/runs"), "application/json", "x".repeat(20_000_000), 413, "too-large", ""),
        (Method::POST, owned("/runs/x/cancel"), "application/json", owned("{}"), 400, "invalid", "runId"),
        (Method::POST, format!("/runs/{unknown}/cancel"), "application/json", owned("{}"), 404, "not-found", "*"),
        (Method::POST, owned("/approvals/x/decision"), "application/json", owned("{}"), 400, "invalid", "approvalId"),
        (
            Method::POST,
            format!("/approvals/{unknown}/decision"),
            "application/json",
            owned(r#"{"decision":"yes"}"#),
            400,
            "invalid",
            "decision",
        ),
        (
            Method::POST,
            format!("/approvals/{unknown}/decision"),
            "application/json",
            owned(r#"{"decision":"approve"}"#),
            400,
            "invalid",
            "proposalVersion",
        ),
        (
            Method::POST,
            format!("/approvals/{unknown}/decision"),
            "application/json",
            owned(r#"{"decision":"approve","proposalVersion":1}"#),
            404,
            "not-found",
            "approvalId",
        ),
        (Method::GET, owned("/approvals?state=decided"), "", owned(""), 400, "invalid", "state"),
        (Method::GET, owned("/approvals?state=approved"), "", owned(""), 400, "invalid", "runId"),
        (Method::GET, owned("/events?type=steps"), "", owned(""), 400, "invalid", "type"),
        (Method::GET, owned("/events?from=noon"), "", owned(""), 400, "invalid", "from"),
        (Method::GET, owned("/events?cursor=noon"), "", owned(""), 400, "invalid", "*"),
        (
            Method::GET,
            owned("/runtime/workflow-definitions/no/versions"),
            "",
            owned(""),
            404,
            "not-found",
            "definitionId",
        ),
        (
            Method::POST,
            owned("/runtime/workflow-definitions"),
            "image/png",
            owned(""),
            415,
            "unsupported-media-type",
            "",
        ),
        (
            Method::POST,
            owned("/runtime/workflow-definitions/validate?publish=maybe"),
            "application/yaml",
            owned(""),
            400,
            "invalid",
            "publish",
        ),
        (
            Method::POST,
            owned("/runtime/workflow-definitions"),
            "application/yaml",
            "#".repeat(1024 * 1024 + 1),
            413,
            "too-large",
            "document",
        ),
        (
            Method::POST,
            owned("/runtime/workflow-definitions"),
            "application/yaml",
            owned("workflow: ["),
            422,
            "refused",
            "",
        ),
    ];
    let client = Client::new();
    for (method, path, media, body, status, code, field) in cases {
        let shown = format!("{method} {path} {}", body.chars().take(60).collect::<String>());
        let mut request = client.request(method, node.url(&path));
        if !media.is_empty() {
            request = request.header("content-type", media);
        }
        let response = request.body(body).send().await.expect(&shown);
        let found = response.status().as_u16();
        let media = response.headers().get("content-type").map(|v| v.to_str().unwrap().to_owned());
        let text = response.text().await.unwrap();
        assert_eq!(media.as_deref(), Some("application/problem+json"), "{shown}: {text}");
        let problem: Value = serde_json::from_str(&text).unwrap();
        assert_eq!((found, problem["code"].as_str()), (status, Some(code)), "{shown}: {problem:#}");
        assert_eq!(problem["status"], status, "{shown}");
        assert!(problem["detail"].as_str().is_some_and(|d| d.contains("Expected")), "{shown}: {problem:#}");
        if field != "*" {
            assert_eq!(problem["field"].as_str().unwrap_or_default(), field, "{shown}: {problem:#}");
        }
    }
    let (status, _) = get(&node, &format!("/runs/{run_id}")).await;
    assert_eq!(status, StatusCode::OK, "nothing of it harmed the run");
}

/// A JSON body that is wrong deep inside says where.
#[tokio::test]
async fn a_wrong_body_is_refused_with_line_and_column() {
    let node = start().await;
    let request = Client::new().post(node.url("/runs")).header("content-type", "application/json");
    let problem: Value = request.body("{\n  \"runId\": 7\n}").send().await.unwrap().json().await.unwrap();
    assert_eq!((&problem["line"], &problem["field"]), (&json!(2), &json!("runId")), "{problem:#}");
}

/// [D7] [D3] Validation gives all findings at once, with their places; nothing is kept.
#[tokio::test]
async fn validation_answers_with_findings() {
    let node = start().await;
    let client = Client::new();
    let text = ECHO.replace("actionClass: read, ", "");
    let validate = async |query: &str| -> Value {
        let request = client.post(node.url(&format!("/runtime/workflow-definitions/validate{query}")));
        request.header("content-type", "text/yaml").body(text.clone()).send().await.unwrap().json().await.unwrap()
    };
    let draft = validate("").await;
    assert_eq!((&draft["valid"], &draft["definitionId"]), (&json!(true), &json!("echo")), "{draft:#}");
    assert_eq!(draft["findings"][0]["severity"], "warning");
    let publish = validate("?publish=true").await;
    assert_eq!(publish["valid"], false);
    let finding = &publish["findings"][0];
    assert_eq!(finding["severity"], "error");
    assert!(finding["line"].as_u64().is_some_and(|l| l > 0), "{finding:#}");
    let (status, _) = get(&node, "/runtime/workflow-definitions/echo/versions").await;
    assert_eq!(status, StatusCode::NOT_FOUND);
}

/// A key in the header is the same as one in the body, and two different ones are refused.
#[tokio::test]
async fn the_idempotency_key_may_stand_in_the_header() {
    let node = start().await;
    load(&node, HUMAN).await;
    let client = Client::new();
    let submit = async |body: Value| {
        let request = client.post(node.url("/runs")).header("idempotency-key", "order-7").json(&body);
        let response = request.send().await.unwrap();
        (response.status(), response.headers().get("location").cloned(), response.json::<Value>().await.unwrap())
    };
    let (status, location, first) = submit(json!({ "definitionId": "human" })).await;
    assert_eq!(status, StatusCode::CREATED);
    assert_eq!(location.unwrap(), format!("/runs/{}", first["run"]["runId"].as_str().unwrap()).as_str());
    let (status, _, _) = submit(json!({ "definitionId": "human", "clientKey": "order-7" })).await;
    assert_eq!(status, StatusCode::OK);
    let (status, _, problem) = submit(json!({ "definitionId": "human", "clientKey": "other" })).await;
    assert_eq!((status, &problem["field"]), (StatusCode::BAD_REQUEST, &json!("clientKey")));
    let (status, _, problem) = submit(json!({ "definitionId": "human", "input": 1 })).await;
    assert_eq!((status, &problem["code"]), (StatusCode::CONFLICT, &json!("conflict")));
}

/// Every operation that is described is there, by its method.
#[tokio::test]
async fn every_described_operation_exists() {
    let node = start().await;
    let (_, document) = get(&node, "/openapi.json").await;
    let client = Client::new();
    let mut seen = 0;
    for (path, operations) in document["paths"].as_object().unwrap() {
        for method in operations.as_object().unwrap().keys() {
            if path == "/events" {
                continue;
            }
            let method = Method::from_bytes(method.to_uppercase().as_bytes()).unwrap();
            let url = node.url(&path.replace('{', "x").replace('}', ""));
            let response = client.request(method.clone(), url).send().await.unwrap();
            let text = response.text().await.unwrap();
            assert!(!text.contains("a path of /openapi.json"), "{method} {path}: {text}");
            assert!(!text.contains("method-not-allowed"), "{method} {path}: {text}");
            seen += 1;
        }
    }
    assert!(seen >= 16, "{seen}");
}

/// [P6]
#[tokio::test]
async fn the_probes_say_ok() {
    let node = start().await;
    for path in ["/healthz", "/readyz", "/startupz"] {
        assert_eq!(get(&node, path).await, (StatusCode::OK, json!({ "status": "ok" })), "{path}");
    }
}

/// Paging through a list meets every run exactly once, newest first.
#[tokio::test]
async fn pages_of_runs_are_without_gap_or_repeat() {
    let node = start().await;
    load(&node, HUMAN).await;
    let mut wanted = Vec::new();
    for n in 0..7 {
        let (_, run) = post(&node, "/runs", &json!({ "definitionId": "human", "input": n })).await;
        wanted.push(run["run"]["runId"].as_str().unwrap().to_owned());
    }
    for query in ["", "&waitingOn=human", "&state=WaitingForApproval"] {
        let (mut found, mut token) = (Vec::new(), String::new());
        loop {
            let (_, page) = get(&node, &format!("/runs?pageSize=3&pageToken={token}{query}")).await;
            found.extend(page["runs"].as_array().unwrap().iter().map(|r| r["runId"].as_str().unwrap().to_owned()));
            token = page["nextPageToken"].as_str().unwrap().to_owned();
            if token.is_empty() {
                break;
            }
        }
        let mut sorted = (found.clone(), wanted.clone());
        sorted.0.sort();
        sorted.1.sort();
        assert_eq!(sorted.0, sorted.1, "{query}");
    }
}
