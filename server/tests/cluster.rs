//! `granary cluster up` and what can be done with it: real silos on loopback, killed, drained, started again.

mod common;

use common::process::{exists, granary, soon};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::process::{Child, ChildStdout};

/// Exit code, standard output, standard error.
async fn say(arguments: &[&str]) -> (i32, String, String) {
    let output = soon(granary(arguments).output()).await.expect("runs");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code().unwrap_or(-1), text(&output.stdout), text(&output.stderr))
}

/// The same of a command that must do what it is asked.
async fn done(arguments: &[&str]) -> String {
    let (code, out, err) = say(arguments).await;
    assert_eq!(code, 0, "{arguments:?}\nout:\n{out}\nerr:\n{err}");
    out
}

/// A running `granary cluster up`.
struct Up {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
    /// Name, URL, process.
    nodes: Vec<(String, String, i32)>,
}

impl Up {
    async fn start(dir: &Path, more: &[&str]) -> Self {
        let dir = dir.display().to_string();
        let mut arguments = vec!["cluster", "up", "--format", "json", "--dir", &dir];
        arguments.extend(more);
        let mut command = granary(&arguments);
        // The machine of a test has other things to do as well: an election by mistake is no fault of the silos.
        command.envs([
            ("GRANARY_CLUSTER__HEARTBEAT_MILLIS", "300"),
            ("GRANARY_CLUSTER__ELECTION_MILLIS_MIN", "1500"),
            ("GRANARY_CLUSTER__ELECTION_MILLIS_MAX", "3000"),
        ]);
        let mut child = command.stderr(Stdio::inherit()).spawn().expect("starts");
        let lines = BufReader::new(child.stdout.take().expect("stdout")).lines();
        let mut up = Self { child, lines, nodes: Vec::new() };
        let ready = up.until("ready").await;
        let node = |it: &Value| {
            let text = |key: &str| it[key].as_str().expect("text").to_owned();
            (text("name"), text("url"), i32::try_from(it["pid"].as_i64().expect("pid")).expect("pid"))
        };
        up.nodes = ready["nodes"].as_array().expect("nodes").iter().map(node).collect();
        up
    }

    async fn until(&mut self, event: &str) -> Value {
        soon(async {
            loop {
                let line = self.lines.next_line().await.expect("reads").expect("the cluster has ended");
                let said: Value = serde_json::from_str(&line).expect("json");
                if said["event"] == event {
                    return said;
                }
            }
        })
        .await
    }

    fn servers(&self) -> String {
        self.nodes.iter().map(|(_, url, _)| url.as_str()).collect::<Vec<_>>().join(",")
    }

    async fn status(&self, server: &str) -> Value {
        let out = done(&["cluster", "status", "--format", "json", "--server", server]).await;
        serde_json::from_str(&out).expect("json")
    }

    /// Asks until the status is as wanted.
    async fn until_status(&self, wanted: impl Fn(&Value) -> bool) -> Value {
        soon(async {
            loop {
                let status = self.status(&self.servers()).await;
                if wanted(&status) {
                    return status;
                }
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        })
        .await
    }

    async fn stop(mut self) {
        let pid = i32::try_from(self.child.id().expect("runs")).expect("pid");
        signal(pid, rustix::process::Signal::TERM);
        assert!(soon(self.child.wait()).await.expect("ends").success());
        for (name, _, pid) in &self.nodes {
            assert!(!Path::new(&format!("/proc/{pid}")).exists(), "{name} outlived the cluster");
        }
    }
}

fn signal(pid: i32, signal: rustix::process::Signal) {
    rustix::process::kill_process(rustix::process::Pid::from_raw(pid).expect("pid"), signal).expect("is there");
}

fn array<'a>(value: &'a Value, key: &str) -> &'a [Value] {
    value[key].as_array().map(Vec::as_slice).unwrap_or_default()
}

fn leader_of(status: &Value, shard: usize) -> String {
    array(status, "shards")[shard]["leader"].as_str().unwrap_or_default().to_owned()
}

/// Two Tool steps in a row; the first one waits until the file `go` is there.
fn workflow(dir: &Path) -> (PathBuf, PathBuf) {
    let (document, worker) = (dir.join("two.yaml"), dir.join("two.worker.yaml"));
    let step =
        |id: &str| format!("  - {{ id: {id}, kind: Tool, tool: {id}, actionClass: read, failurePolicy: Fail }}\n");
    let text = format!(
        "workflow: two\nversion: 1.0.0\ninput: builtin:any\noutput: builtin:any\nsteps:\n{}{}edges:\n  - {{ from: slow, to: quick }}\n",
        step("slow"),
        step("quick")
    );
    std::fs::write(&document, text).expect("writes");
    let waits = "touch begun; until [ -e go ]; do sleep 0.05; done; cat";
    let text = format!(
        "tools:\n  slow: {{ command: [sh, -c, {waits:?}], idempotent: true }}\n  quick: {{ command: [cat], idempotent: true }}\n"
    );
    std::fs::write(&worker, text).expect("writes");
    (document, worker)
}

/// [K1] [K6] [K7] [K8] A cluster in one command: every silo shows the same, a run goes on although the silo that its client and
/// its worker talk to is killed in the middle, and the folder is the same cluster at the next start.
#[tokio::test]
async fn a_run_outlives_the_silo_that_it_was_started_at_and_the_cluster_its_stop() {
    let dir = tempfile::tempdir().expect("dir");
    let (document, worker) = workflow(dir.path());
    let (document, worker) = (document.display().to_string(), worker.display().to_string());
    let mut up = Up::start(&dir.path().join("cluster"), &["--nodes", "3", "--shards", "4"]).await;
    let mut ids = Vec::new();
    for (name, url, _) in &up.nodes {
        let status = up.status(url).await;
        assert_eq!(status["answeredBy"], **name);
        assert_eq!((array(&status, "nodes").len(), array(&status, "shards").len()), (3, 4), "{status:#}");
        ids.push(status["clusterId"].clone());
    }
    assert!(ids.iter().all(|id| id == &ids[0] && id != ""), "{ids:?}");

    // Both the client and the worker ask the first silo first.
    let servers = up.servers();
    let run_id = "0190a3c4-7d1e-7f3a-9c55-2f6b8e0d4a11";
    let data = dir.path().join("data").display().to_string();
    let mut run =
        granary(&["run", &document, "--worker", &worker, "--server", &servers, "--run-id", run_id, "--data", &data]);
    let run = run.spawn().expect("starts");
    exists(&dir.path().join("begun")).await;
    signal(up.nodes[0].2, rustix::process::Signal::KILL);
    let ended = up.until("ended").await;
    assert_eq!((ended["node"].as_str(), ended["left"].as_i64()), (Some("node-1"), Some(2)));
    std::fs::write(dir.path().join("go"), "").expect("writes");
    let output = soon(run.wait_with_output()).await.expect("ends");
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success() && out.contains("Completed"), "out:\n{out}\nerr:\n{err}");
    up.stop().await;

    let again = Up::start(&dir.path().join("cluster"), &[]).await;
    assert_eq!(again.nodes.len(), 3);
    assert_eq!(again.status(&again.servers()).await["clusterId"], ids[0]);
    for (_, url, _) in &again.nodes {
        let shown = done(&["runs", "show", run_id, "--server", url]).await;
        assert!(shown.contains("Completed"), "{shown}");
    }
    again.stop().await;
}

/// [K8] Leaders are handed over on demand, a drained silo ends up without shards, and takes some again afterwards; one that is
/// removed ends with code 6.
#[tokio::test]
async fn shards_are_moved_on_demand() {
    let dir = tempfile::tempdir().expect("dir");
    let mut up = Up::start(&dir.path().join("cluster"), &["--nodes", "4", "--shards", "4"]).await;
    let servers = up.servers();
    let change = async |arguments: &[&str]| {
        let all: Vec<&str> =
            ["cluster"].iter().chain(arguments).chain(&["--server", servers.as_str()]).copied().collect();
        say(&all).await
    };
    let status = up.until_status(|s| array(s, "shards").iter().all(|it| it["leader"] != "")).await;
    let replicas: Vec<String> = array(&array(&status, "shards")[1], "replicas")
        .iter()
        .map(|replica| replica["node"].as_str().unwrap_or_default().to_owned())
        .collect();
    let to = replicas.iter().find(|node| **node != leader_of(&status, 1)).expect("another replica").clone();
    let (code, out, err) = change(&["transfer", "1", &to]).await;
    assert_eq!((code, out.contains("leads shard 1")), (0, true), "{out}\n{err}");

    let (code, _, err) = change(&["drain", "node-4"]).await;
    assert_eq!(code, 0, "{err}");
    let of = |status: &Value, name: &str, key: &str| {
        array(status, "nodes")
            .iter()
            .find(|node| node["name"] == name)
            .map(|node| node[key].clone())
            .unwrap_or_default()
    };
    let status = up.until_status(|s| of(s, "node-4", "replicas") == 0).await;
    assert_eq!(of(&status, "node-4", "state"), "draining");
    let (code, _, err) = change(&["drain", "node-4", "--undo"]).await;
    assert_eq!(code, 0, "{err}");
    up.until_status(|s| of(s, "node-4", "state") == "up").await;

    for (arguments, wanted_code, wanted) in [
        (&["drain", "node-9"][..], 1, "node-9"),
        (&["transfer", "99", "node-1"], 2, "99"),
        (&["transfer", "0", "node-9"], 1, "node-9"),
    ] {
        let (code, _, err) = change(arguments).await;
        assert!(code == wanted_code && err.contains(wanted), "{arguments:?}: {code} {err}");
    }
    let (code, _, err) = change(&["remove", "node-4"]).await;
    assert_eq!(code, 0, "{err}");
    // It ends by itself, and its exit code says that another start would be no use.
    let ended = up.until("ended").await;
    assert_eq!((ended["node"].as_str(), ended["how"].as_str()), (Some("node-4"), Some("exit code 6")), "{ended}");
    up.until_status(|s| array(s, "nodes").iter().all(|node| node["name"] != "node-4" || node["state"] == "gone")).await;
    up.stop().await;
}

/// [P5] [P3] What is wrong with a silo's settings is said with its key before anything is touched.
#[tokio::test]
async fn a_silo_with_wrong_certificates_does_not_start() {
    let dir = tempfile::tempdir().expect("dir");
    let certs = dir.path().join("certs");
    let certs = certs.display().to_string();
    done(&["cluster", "certs", "--out", &certs, "--names", "a,b"]).await;
    let (code, _, err) = say(&["cluster", "certs", "--out", &certs, "--names", "a"]).await;
    assert!(code == 2 && err.contains("a.pem") && err.contains("not written over"), "{code} {err}");
    let start = async |name: &str, cert: &str, key: &str, secret: &str| {
        let file = dir.path().join("node.yaml");
        let data = dir.path().join("data");
        let text = format!(
            "name: {name}\nlisten: 127.0.0.1:0\nstore: {{ dataDir: {data:?} }}\ncluster:\n  enabled: true\n  founders: [{name}]\n  \
             peerListen: 127.0.0.1:0\n  meshListen: 127.0.0.1:0\n  tls: {{ ca: {certs}/ca.pem, cert: {certs}/{cert}, key: {certs}/{key} }}\n  \
             secretFile: {certs}/{secret}\n"
        );
        std::fs::write(&file, text).expect("writes");
        let said = say(&["node", "--config", &file.display().to_string()]).await;
        assert!(!data.exists(), "the data folder was made");
        said
    };
    std::fs::write(dir.path().join("certs/short"), "too short").expect("writes");
    for (name, cert, key, secret, wanted) in [
        ("c", "a.pem", "a.key", "secret", "to bear this silo's name \"c\", but found a"),
        ("a", "none.pem", "a.key", "secret", "none.pem"),
        ("a", "a.pem", "b.key", "secret", "TLS"),
        ("a", "a.pem", "a.key", "short", "but found 9"),
        ("a", "a.pem", "a.key", "none", "cluster.secretFile"),
    ] {
        let (code, _, err) = start(name, cert, key, secret).await;
        assert!(code == 2 && err.contains(wanted), "{wanted}: {code} {err}");
    }
}

/// [K1] A silo that is alone answers as a cluster of one.
#[tokio::test]
async fn a_silo_that_is_alone_is_a_cluster_of_one() {
    let dir = tempfile::tempdir().expect("dir");
    let data = dir.path().display().to_string();
    let mut child = granary(&["dev", "--listen", "127.0.0.1:0", "--data", &data]).spawn().expect("starts");
    let mut lines = BufReader::new(child.stdout.take().expect("stdout")).lines();
    let line = soon(lines.next_line()).await.expect("reads").expect("a line");
    let url = line.split_whitespace().find(|word| word.starts_with("http://")).expect("an address").to_owned();
    let shown = soon(async {
        loop {
            let out = done(&["cluster", "status", "--format", "json", "--server", &url]).await;
            let status: Value = serde_json::from_str(&out).expect("json");
            if array(&status, "nodes").first().is_some_and(|node| node["leads"] == 8) {
                return status;
            }
        }
    })
    .await;
    let node = &array(&shown, "nodes")[0];
    assert_eq!(
        (node["name"].as_str(), node["state"].as_str(), node["replicas"].as_i64()),
        (Some("granary-0"), Some("up"), Some(8))
    );
    let (code, _, err) = say(&["cluster", "drain", "granary-0", "--server", &url]).await;
    assert!(code == 1 && err.contains("alone"), "{code} {err}");
}
