//! Operation: metrics, restart, stop, server-sent events.
#![allow(clippy::unwrap_used)]

mod common;

use common::{ECHO, HUMAN, PATIENCE, TestNode, config, start, worker};
use granary::config::{Source, load};
use granary::node::Granary;
use serde_json::{Value, json};
use std::collections::HashSet;
use std::time::{Duration, Instant};
use tokio::io::AsyncReadExt as _;
use tokio::net::TcpStream;

async fn figures(node: &TestNode) -> String {
    reqwest::get(node.url("/metrics")).await.unwrap().text().await.unwrap()
}

fn value(text: &str, wanted: &[&str]) -> f64 {
    let fits = |line: &&str| !line.starts_with('#') && wanted.iter().all(|w| line.contains(w));
    text.lines().filter(fits).filter_map(|l| l.rsplit(' ').next()?.parse::<f64>().ok()).sum()
}

/// Asks until the figure is as wanted: it follows the events a moment later.
async fn until(node: &TestNode, wanted: &[&str], figure: f64) -> String {
    let begun = Instant::now();
    loop {
        let text = figures(node).await;
        if value(&text, wanted) == figure {
            return text;
        }
        assert!(begun.elapsed() < PATIENCE, "{wanted:?} should be {figure}:\n{text}");
        tokio::task::yield_now().await;
    }
}

/// [P4] FR-155: S1's metrics under their names and dimensions; a restart counts nothing twice.
#[tokio::test]
async fn the_metrics_count_each_run_once_also_over_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let node = Granary::start(config(dir.path())).await.unwrap();
    node.ready(PATIENCE).await.unwrap();
    let node = TestNode { node, dir };
    let work = worker::start(node.channel().await, "default", &["tool:echo"], |a| {
        let fails = a.input.as_ref().is_some_and(|i| i.text == b"\"fail\"");
        if fails { worker::failed("tool") } else { worker::succeeded(granary_proto::wire::Json::new("1")) }
    })
    .await;
    let (echo, human) = (node.publish(ECHO).await, node.publish(HUMAN).await);
    for n in 0..10 {
        let input = if n < 3 { json!("fail") } else { json!(n) };
        let run = node.submit(&echo, input).await;
        node.until_state(&run.run_id, if n < 3 { "Failed" } else { "Completed" }).await;
    }
    node.submit(&human, json!(1)).await;
    until(&node, &["granary_runs_total", "event=\"failed\"", "definition=\"echo\""], 3.0).await;
    until(&node, &["granary_runs_total", "event=\"started\"", "definition=\"human\""], 1.0).await;
    let text = until(&node, &["granary_runs_total", "event=\"completed\"", "definition=\"echo\""], 7.0).await;
    assert_eq!(value(&text, &["granary_runs_total", "event=\"started\"", "definition=\"echo\""]), 10.0);
    let latency = "connectsoft_factory_workflows_step_latency_count";
    assert_eq!(value(&text, &[latency, "stepKind=\"Tool\"", "definition=\"echo\"", "tenant=\"default\""]), 10.0);
    until(
        &node,
        &["connectsoft_factory_workflows_runs_active", "definition=\"human\"", "state=\"WaitingForHuman\""],
        1.0,
    )
    .await;

    drop(work);
    let TestNode { node, dir } = node;
    node.shutdown().await.unwrap();
    let node = Granary::start(config(dir.path())).await.unwrap();
    node.ready(PATIENCE).await.unwrap();
    let node = TestNode { node, dir };
    let text = until(
        &node,
        &["connectsoft_factory_workflows_runs_active", "definition=\"human\"", "state=\"WaitingForHuman\""],
        1.0,
    )
    .await;
    assert_eq!(value(&text, &["granary_runs_total"]), 0.0, "what the last life counted is not counted again");
    let listed = node.runs().await.list_runs(granary_proto::v1::ListRunsRequest::default()).await.unwrap().into_inner();
    assert_eq!(listed.runs.len(), 11);
}

/// [P6] FR-097: silent connections, open event streams and a watch do not hold up the stop.
#[tokio::test]
async fn a_stop_does_not_wait_for_silent_clients() {
    let node = start().await;
    let release = node.publish(HUMAN).await;
    let run = node.submit(&release, json!(1)).await;
    node.until_state(&run.run_id, "WaitingForHuman").await;
    let mut silent = Vec::new();
    for _ in 0..20 {
        silent.push(TcpStream::connect(node.node.addr()).await.unwrap());
    }
    let mut streams = Vec::new();
    for _ in 0..5 {
        streams.push(reqwest::get(node.url("/events")).await.unwrap());
    }
    let mut client = node.runs().await;
    let watch = granary_proto::v1::WatchRunRequest { run_id: run.run_id };
    let mut graphs = client.watch_run(watch).await.unwrap().into_inner();
    graphs.message().await.unwrap();
    let begun = Instant::now();
    node.node.shutdown().await.unwrap();
    let took = begun.elapsed();
    assert!(took < Duration::from_secs(10), "{took:?} is the whole drain time");
    let end = tokio::time::timeout(PATIENCE, graphs.message()).await.expect("the watch ends");
    assert!(!matches!(end, Ok(Some(_))), "{end:?}");
}

/// [P5] Two nodes on one data folder: the second says so and does not start; the first goes on.
#[tokio::test]
async fn a_second_node_on_the_same_folder_is_refused() {
    let node = start().await;
    let error = Granary::start(config(node.dir.path())).await.err().map(|e| format!("{e:#}")).unwrap();
    assert!(error.contains("in use"), "{error}");
    node.publish(ECHO).await;
}

struct Sse {
    response: reqwest::Response,
    text: String,
}

impl Sse {
    async fn open(node: &TestNode, query: &str, last: Option<&str>) -> Self {
        let mut request = reqwest::Client::new().get(node.url(&format!("/events{query}")));
        if let Some(last) = last {
            request = request.header("Last-Event-ID", last);
        }
        let response = request.send().await.unwrap();
        assert_eq!(response.headers()["content-type"], "text/event-stream");
        Self { response, text: String::new() }
    }

    /// Id and data of the next event.
    async fn next(&mut self) -> (String, Value) {
        loop {
            if let Some((event, rest)) = self.text.split_once("\n\n") {
                let line = |name: &str| event.lines().find_map(|l| l.strip_prefix(name)).map(|l| l.trim().to_owned());
                let found = line("data:").map(|data| (line("id:").unwrap_or_default(), data));
                self.text = rest.to_owned();
                if let Some((id, data)) = found {
                    return (id, serde_json::from_str(&data).unwrap());
                }
                continue;
            }
            let chunk = tokio::time::timeout(PATIENCE, self.response.chunk()).await.expect("in time");
            self.text.push_str(std::str::from_utf8(&chunk.unwrap().expect("the stream goes on")).unwrap());
        }
    }
}

/// [V2] Server-sent events go on behind the id that the client saw last, also over a restart.
#[tokio::test]
async fn events_over_http_go_on_behind_the_last_id() {
    let node = start().await;
    let release = node.publish(HUMAN).await;
    for n in 0..4 {
        node.submit(&release, json!(n)).await;
    }
    let query = "?from=earliest&type=workflow-run-started";
    let mut all = Vec::new();
    let mut stream = Sse::open(&node, query, None).await;
    for _ in 0..4 {
        let (id, event) = stream.next().await;
        assert_eq!(event["specversion"], "1.0");
        all.push((id, event["id"].as_str().unwrap().to_owned()));
    }
    let ids: HashSet<&String> = all.iter().map(|(_, id)| id).collect();
    assert_eq!(ids.len(), 4);

    let TestNode { node, dir } = node;
    drop(stream);
    node.shutdown().await.unwrap();
    let node = Granary::start(config(dir.path())).await.unwrap();
    node.ready(PATIENCE).await.unwrap();
    let node = TestNode { node, dir };
    // The second event's cursor; an event that is not the last of its turn carries the place before it.
    let mut stream = Sse::open(&node, "?type=workflow-run-started", Some(&all[1].0)).await;
    let mut again = Vec::new();
    while again.last() != Some(&all[3].1) {
        again.push(stream.next().await.1["id"].as_str().unwrap().to_owned());
    }
    let wanted: Vec<String> = all.iter().map(|(_, id)| id.clone()).collect();
    assert!(again == wanted[2..] || again == wanted[1..], "{again:?} of {wanted:?}");
}

/// A request of nothing is not answered with a panic: the connection ends or says what is wrong.
#[tokio::test]
async fn noise_on_the_port_harms_nobody() {
    use tokio::io::AsyncWriteExt as _;
    let node = start().await;
    for noise in
        [&b"\0\0\0\0\0\0\0\0"[..], b"GET", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\xff\xff\xff\xff\xff\xff\xff\xff\xff"]
    {
        let mut stream = TcpStream::connect(node.node.addr()).await.unwrap();
        stream.write_all(noise).await.unwrap();
        stream.shutdown().await.unwrap();
        let mut answer = Vec::new();
        // Closed by the other side, in whatever way.
        let _ = tokio::time::timeout(PATIENCE, stream.read_to_end(&mut answer)).await.expect("the connection ends");
    }
    node.publish(ECHO).await;
}

/// [P5] `maxFanout` is taken over while the node runs: the same definition that failed passes then.
#[tokio::test]
async fn a_changed_option_holds_for_the_next_run() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("granary.yaml");
    let write = |fanout: u32| {
        let next = dir.path().join("next");
        std::fs::write(&next, format!("workflows: {{ engine: {{ maxFanout: {fanout} }} }}")).unwrap();
        std::fs::rename(next, &file).unwrap();
    };
    write(2);
    let base = config(&dir.path().join("data"));
    let source = Source { file: Some(file.clone()), environment: Vec::new(), base };
    let node = Granary::start_from(load(&source).unwrap(), Some(source)).await.unwrap();
    node.ready(PATIENCE).await.unwrap();
    let node = TestNode { node, dir: tempfile::tempdir().unwrap() };
    let document = r#"
workflow: wide
version: 1.0.0
input: builtin:any
output: builtin:any
steps:
  - { id: split, kind: Fanout, items: { var: input } }
  - { id: work, kind: Tool, tool: echo, actionClass: read, failurePolicy: Fail }
  - { id: collect, kind: Join }
edges:
  - { from: split, to: work }
  - { from: work, to: collect }
"#;
    let release = node.publish(document).await;
    let _worker = worker::echo(node.channel().await, "default", &["tool:echo"]).await;
    let narrow = node.submit(&release, json!([1, 2, 3])).await;
    let graph = node.until_state(&narrow.run_id, "Failed").await;
    assert_eq!(graph.failure.unwrap().class, "fanout-limit");
    write(8);
    let begun = Instant::now();
    while node.node.api().live().get().workflows.engine.max_fanout != 8 {
        assert!(begun.elapsed() < PATIENCE, "the file's change was not seen");
        tokio::task::yield_now().await;
    }
    let wide = node.submit(&release, json!([1, 2, 3])).await;
    node.until_state(&wide.run_id, "Completed").await;
}

/// [FR-131] [K9] Who finds no place is refused before anything else looks at it, and is in the figures all the same.
#[tokio::test]
async fn who_finds_no_place_is_counted() {
    let node = common::start_with(|config| config.limits.streams = 1).await;
    let human = node.publish(HUMAN).await;
    let run = node.submit(&human, json!(1)).await.run_id;
    let refused = ["granary_rejections_total", "code=\"overloaded\""];
    assert_eq!(value(&figures(&node).await, &refused), 0.0);
    let request = || granary_proto::v1::WatchRunRequest { run_id: run.clone() };
    let mut first = node.runs().await.watch_run(request()).await.unwrap().into_inner();
    assert!(first.message().await.unwrap().is_some(), "it has its place");
    for n in 1..=3 {
        let status = node.runs().await.watch_run(request()).await.unwrap_err();
        assert_eq!(status.code(), tonic::Code::ResourceExhausted, "{status:?}");
        assert_eq!(value(&figures(&node).await, &refused), f64::from(n));
    }
    assert_eq!(reqwest::get(node.url("/readyz")).await.unwrap().status(), 200, "it still does what it has places for");
}
