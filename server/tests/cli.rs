//! The binary as people use it: processes, files, exit codes, and a kill in the middle.

mod common;

use common::process::{Dev, Said, a_run, exists, granary, interrupt, say, soon, written};
use serde_json::Value;
use std::path::{Path, PathBuf};
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::Command;

/// A folder with a workflow of three Tool steps, `first`, `second` (with a person before it if asked), `third`. Each step writes
/// one line into `effects`, once for each idempotency key.
struct Place {
    dir: TempDir,
}

impl Place {
    fn new(second: &str, human: bool) -> Self {
        let dir = tempfile::tempdir().expect("dir");
        let human_step = "  - { id: ask, kind: Human, actionClass: shared-write, failurePolicy: Compensate }\n";
        let edges =
            if human { "[first, ask], [ask, second], [second, third]" } else { "[first, second], [second, third]" };
        let edges: String = edges
            .split("], [")
            .map(|pair| pair.trim_matches(['[', ']']).split_once(", ").expect("a pair"))
            .map(|(from, to)| format!("  - {{ from: {from}, to: {to} }}\n"))
            .collect();
        let step = |id: &str, more: &str| {
            format!(
                "  - {{ id: {id}, kind: Tool, tool: {id}, actionClass: shared-write, failurePolicy: Fail{more} }}\n"
            )
        };
        let document = format!(
            "workflow: three\nversion: 1.0.0\ninput: any.json\noutput: any.json\nsteps:\n{}{}{}{}{}edges:\n{edges}",
            step("first", ", compensation: undo"),
            if human { human_step } else { "" },
            step("second", ""),
            step("third", ""),
            "  - { id: undo, kind: Compensation, tool: undo, actionClass: shared-write }\n",
        );
        let effect =
            "grep -q \"$WORK_IDEMPOTENCY_KEY\" effects || echo \"$WORK_STEP_ID $WORK_IDEMPOTENCY_KEY\" >> effects";
        let tool = |id: &str, script: &str| {
            format!(
                "  {id}: {{ command: [sh, -c, {}], idempotent: true }}\n",
                serde_json::to_string(script).expect("text")
            )
        };
        let worker = format!(
            "tools:\n{}{}{}{}",
            tool("first", effect),
            tool("second", &format!("{second}\n{effect}")),
            tool("third", &format!("{effect}; cat")),
            tool("undo", "echo undone >> effects"),
        );
        let place = Self { dir };
        place.write("three.yaml", &document);
        place.write("three.worker.yaml", &worker);
        place.write("any.json", "{}");
        place.write("input.json", "{\"n\": 7}");
        place.write("effects", "");
        place
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn text(&self, name: &str) -> String {
        self.path(name).display().to_string()
    }

    fn write(&self, name: &str, text: &str) {
        std::fs::write(self.path(name), text).expect("writes");
    }

    fn effects(&self) -> Vec<String> {
        let text = std::fs::read_to_string(self.path("effects")).expect("effects");
        text.lines().map(|line| line.split(' ').next().unwrap_or_default().to_owned()).collect()
    }

    fn run(&self, more: &[&str]) -> Command {
        let mut command = granary(&[
            "run",
            &self.text("three.yaml"),
            "--input",
            &self.text("input.json"),
            "--data",
            &self.text("data"),
        ]);
        command.args(more);
        command
    }

    async fn say_run(&self, more: &[&str]) -> Said {
        Said::of(&soon(self.run(more).output()).await.expect("runs"))
    }
}

/// [C2, C4, K1] One command: silo, worker, run; a line a step; the output at the end.
#[tokio::test(flavor = "multi_thread")]
async fn a_run_goes_from_file_to_end_in_one_command() {
    let place = Place::new("true", false);
    let said = place.say_run(&[]).await.ended_with(0);
    assert_eq!(place.effects(), ["first", "second", "third"]);
    for part in ["first ", "second ", "third ", "Succeeded", "Completed in", "\"n\": 7"] {
        assert!(said.out.contains(part), "{part} is missing in\n{}", said.out);
    }
    // The id comes first, so that it is known whatever happens.
    assert!(said.out.starts_with("run 0"), "{}", said.out);
}

/// [O1] [O2] [O3] [C4] The phone example, as its first line says: skills, a wait that times out, a branch that recovers, a loop
/// until the world is as wanted.
#[tokio::test(flavor = "multi_thread")]
async fn the_phone_is_automated_in_one_command() {
    let dir = tempfile::tempdir().expect("dir");
    let example = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/phone-automation.yaml");
    let (example, data) = (example.display().to_string(), dir.path().join("data").display().to_string());
    let mut command = granary(&["run", &example, "--data", &data, "--format", "json"]);
    // The phone keeps its state there.
    command.env("TMPDIR", dir.path());
    let graph = Said::of(&soon(command.output()).await.expect("runs")).ended_with(0).json();
    let ended = |id: &str| {
        let runs = graph["stepRuns"].as_array().expect("step runs").iter();
        runs.filter(|run| run["stepId"] == id).map(|run| run["state"].as_str().unwrap_or_default()).collect::<Vec<_>>()
    };
    assert_eq!(graph["state"], "Completed", "{graph:#}");
    assert_eq!((ended("inbox"), ended("dismiss")), (vec!["Failed"], vec!["Succeeded"]));
    assert_eq!(ended("read"), ["Succeeded", "Succeeded"], "two mails were unread");
    assert_eq!(graph["output"]["screen"], "home");
}

/// [C2] The end for programs is one object.
#[tokio::test(flavor = "multi_thread")]
async fn a_run_for_programs_prints_its_graph() {
    let run = a_run();
    let run = run.as_str();
    let place = Place::new("true", false);
    let graph = place.say_run(&["--format", "json", "--run-id", run]).await.ended_with(0).json();
    assert_eq!((graph["runId"].as_str(), graph["state"].as_str()), (Some(run), Some("Completed")));
    assert_eq!(graph["output"]["n"], 7);
}

/// [K3, K7, R2, C3, C4] Killed in the middle of a step, with everything in one process: the same command goes on, each effect
/// is there once, and what was left of the killed command is gone.
#[tokio::test(flavor = "multi_thread")]
async fn a_run_killed_in_the_middle_goes_on_as_if_nothing_had_happened() {
    let run = a_run();
    let run = run.as_str();
    // The first life of the second step never ends by itself.
    let place = Place::new("echo $$ >> pids; test $(wc -l < pids) -gt 1 || while :; do sleep 0.05; done", false);
    let mut first = place.run(&["--run-id", run]).spawn().expect("starts");
    written(&place.path("pids")).await;
    first.kill().await.expect("kills");
    assert_eq!(place.effects(), ["first"]);

    let said = place.say_run(&["--run-id", run]).await.ended_with(0);
    assert!(said.out.contains("going on with it"), "{}", said.out);
    assert_eq!(place.effects(), ["first", "second", "third"]);
    let pids = std::fs::read_to_string(place.path("pids")).expect("pids");
    let orphan = pids.lines().next().expect("a pid");
    let state = std::fs::read_to_string(format!("/proc/{orphan}/stat")).unwrap_or_default();
    assert!(state.is_empty() || state.contains(") Z "), "still there: {state}");
    // Once more: the run has ended, so it is only told.
    let said = place.say_run(&["--run-id", run]).await.ended_with(0);
    assert!(said.out.contains("Completed in"), "{}", said.out);
    assert_eq!(place.effects(), ["first", "second", "third"]);
}

/// [R8, R11] A person says no: what was done is undone, and the exit code tells it.
#[tokio::test(flavor = "multi_thread")]
async fn a_rejection_compensates_and_an_approval_goes_on() {
    let place = Place::new("true", true);
    let said = place.say_run(&["--decide", "reject"]).await.ended_with(1);
    assert_eq!(place.effects(), ["first", "undone"]);
    assert!(said.out.contains("rejected") && said.out.contains("compensated yes"), "{}", said.out);

    let place = Place::new("true", true);
    place.say_run(&["--decide", "approve"]).await.ended_with(0);
    assert_eq!(place.effects(), ["first", "second", "third"]);
}

/// [R8] Nobody to ask: the run waits on disk, and the command that goes on is said.
#[tokio::test(flavor = "multi_thread")]
async fn a_run_that_waits_for_a_person_ends_with_five_and_can_be_taken_up() {
    let run = a_run();
    let run = run.as_str();
    let place = Place::new("true", true);
    let said = place.say_run(&["--run-id", run, "--decide", "wait"]).await.ended_with(5);
    assert!(
        said.out.contains(&format!("--run-id {run} --data")) && said.out.contains("ask waits for a decision"),
        "{}",
        said.out
    );
    assert_eq!(place.effects(), ["first"]);
    place.say_run(&["--run-id", run, "--decide", "approve"]).await.ended_with(0);
    assert_eq!(place.effects(), ["first", "second", "third"]);
}

/// [P6] The first ctrl-C leaves the run where it is, and says how to go on.
#[tokio::test(flavor = "multi_thread")]
async fn an_interrupted_run_can_be_taken_up() {
    let run = a_run();
    let run = run.as_str();
    let place = Place::new("touch begun; test -e go || while :; do sleep 0.05; done", false);
    let running = place.run(&["--run-id", run]).spawn().expect("starts");
    exists(&place.path("begun")).await;
    interrupt(&running, rustix::process::Signal::INT);
    let said = Said::of(&soon(running.wait_with_output()).await.expect("ends")).ended_with(5);
    assert!(said.out.contains(&format!("granary run {} --run-id {run}", place.text("three.yaml"))), "{}", said.out);
    place.write("go", "");
    place.say_run(&["--run-id", run]).await.ended_with(0);
    assert_eq!(place.effects(), ["first", "second", "third"]);
}

/// [C2] What is wrong is told apart by the exit code.
#[tokio::test(flavor = "multi_thread")]
async fn exit_codes_tell_what_was_wrong() {
    let place = Place::new("echo it broke >&2; echo twice >&2; exit 7", false);
    let said = place.say_run(&[]).await.ended_with(1);
    // What a tool says in many lines is one line each where it is told.
    let told = said.out.lines().filter(|line| line.contains("it broke") && line.contains("twice")).count();
    assert!(said.out.contains("failed      at second: tool:") && told == 2, "{}", said.out);

    place.write("three.yaml", "workflow: three\nsteps: [}");
    place.say_run(&[]).await.ended_with(2);
    place.write("input.json", "{");
    let said = place.say_run(&[]).await.ended_with(2);
    assert!(said.err.contains("Expected JSON"), "{}", said.err);
    say(&["run", "/no/such/file.yaml"]).await.ended_with(2);
    say(&["runs", "list", "--colour"]).await.ended_with(2);
    say(&["--help"]).await.ended_with(0);

    // A port that was free a moment ago.
    let free = std::net::TcpListener::bind("127.0.0.1:0").expect("port").local_addr().expect("address");
    let said = say(&["runs", "list", "--server", &format!("http://{free}")]).await.ended_with(3);
    assert!(said.err.contains("Start one with: granary dev"), "{}", said.err);
    let said = say(&["runs", "list", "--format", "json", "--server", &format!("http://{free}")]).await.ended_with(3);
    let error: Value = serde_json::from_str(said.err.lines().last().unwrap_or_default()).expect("an object");
    assert_eq!(error["error"]["code"], "unreachable");
}

/// Standard output whose reader has gone: nobody is told, but nothing else is different, and nothing panics.
#[tokio::test(flavor = "multi_thread")]
async fn a_reader_that_has_gone_is_no_fault() {
    let run = a_run();
    let run = run.as_str();
    let unread = async |mut command: Command| {
        let (reader, writer) = std::io::pipe().expect("a pipe");
        drop(reader);
        // Not `output`, which would listen.
        let child = command.stdout(writer).spawn().expect("starts");
        drop(command);
        let said = Said::of(&soon(child.wait_with_output()).await.expect("ends"));
        assert!(!said.err.contains("panicked"), "{}", said.err);
        said
    };
    let place = Place::new("true", false);
    unread(place.run(&[])).await.ended_with(0);
    assert_eq!(place.effects(), ["first", "second", "third"]);
    let file = place.text("three.yaml");
    unread(granary(&["validate", &file])).await.ended_with(0);

    let other = tempfile::tempdir().expect("dir");
    let dev = Dev::start(&other.path().display().to_string()).await;
    let commands: [(&[&str], i32); 12] = [
        (&["definitions", "load", &file], 0),
        (&["definitions", "list"], 0),
        (&["runs", "start", "three", "--run-id", run], 0),
        (&["runs", "list"], 0),
        (&["runs", "list", "--format", "json"], 0),
        (&["runs", "show", run], 0),
        (&["runs", "journal", run], 0),
        // The run waits for a worker, and who watches unread does not.
        (&["runs", "watch", run], 5),
        (&["approvals", "list"], 0),
        (&["events", "tail", "--from", "earliest"], 0),
        (&["runs", "cancel", run], 0),
        (&["runs", "watch", run], 4),
    ];
    for (command, code) in commands {
        let command: Vec<&str> = command.iter().copied().chain(["--server", &dev.url]).collect();
        unread(granary(&command)).await.ended_with(code);
    }
    // Words that somebody wanted and that could not be written are another matter.
    let mut command = granary(&["runs", "list", "--server", &dev.url]);
    let full = std::fs::File::options().write(true).open("/dev/full").expect("opens");
    let child = command.stdout(full).spawn().expect("starts");
    let said = Said::of(&soon(child.wait_with_output()).await.expect("ends")).ended_with(1);
    assert!(said.err.contains("Expected to write to standard output"), "{}", said.err);
}

/// [P5] The file's `log` is in force from the start; the environment comes before it.
#[tokio::test(flavor = "multi_thread")]
async fn the_configured_log_filter_holds_from_the_start() {
    for (config, environment, heard) in
        [("", None, true), ("log: warn", None, false), ("log: warn", Some("info"), true)]
    {
        let place = Place::new("true", false);
        place.write("granary.yaml", config);
        let (data, file) = (place.text("data"), place.text("granary.yaml"));
        let mut command = granary(&["dev", "--listen", "127.0.0.1:0", "--data", &data, "--config", &file]);
        command
            .env_remove("RUST_LOG")
            .env_remove("GRANARY_LOG")
            .envs(environment.map(|filter| ("GRANARY_LOG", filter)));
        let mut child = command.spawn().expect("starts");
        // It speaks once it listens.
        let mut lines = BufReader::new(child.stdout.take().expect("piped")).lines();
        soon(lines.next_line()).await.expect("reads").expect("a first line");
        interrupt(&child, rustix::process::Signal::TERM);
        let said = Said::of(&soon(child.wait_with_output()).await.expect("ends")).ended_with(0);
        assert_eq!(said.err.contains("granary listens"), heard, "{config} {environment:?}: {}", said.err);
    }
    // A start that fails says why, and nothing else.
    let place = Place::new("true", false);
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("port");
    let address = taken.local_addr().expect("address").to_string();
    let mut command = granary(&["dev", "--listen", &address, "--data", &place.text("data")]);
    command.env_remove("RUST_LOG").env_remove("GRANARY_LOG");
    let said = Said::of(&soon(command.output()).await.expect("runs")).ended_with(2);
    assert!(said.err.starts_with("granary: The silo on") && !said.err.contains("INFO"), "{}", said.err);
}

/// The command line's tenant comes before that of the worker's file; `granary run` has its worker work for its run.
#[tokio::test(flavor = "multi_thread")]
async fn a_worker_works_for_the_tenant_of_the_command_line() {
    let place = Place::new("true", false);
    let worker = std::fs::read_to_string(place.path("three.worker.yaml")).expect("reads");
    place.write("three.worker.yaml", &format!("tenant: elsewhere\n{worker}"));
    place.say_run(&["--tenant", "here"]).await.ended_with(0);
    assert_eq!(place.effects(), ["first", "second", "third"]);
}

/// [D3] Drawn for people, an object for programs; places and codes are the same.
#[tokio::test(flavor = "multi_thread")]
async fn validation_is_for_people_and_for_programs() {
    let place = Place::new("true", false);
    let file = place.text("three.yaml");
    let said = say(&["validate", &file, "--publish"]).await.ended_with(0);
    assert!(said.out.contains("valid (4 steps, graph hash "), "{}", said.out);
    let text = std::fs::read_to_string(&file).expect("reads").replace("to: third", "to: thirt");
    place.write("three.yaml", &text);
    let said = say(&["validate", &file]).await.ended_with(2);
    assert!(
        said.out.contains("error[") && said.out.contains("thirt") && said.out.contains("three.yaml:"),
        "{}",
        said.out
    );
    let report = say(&["validate", &file, "--format", "json"]).await.ended_with(2).json();
    let finding = report["findings"]
        .as_array()
        .and_then(|list| list.iter().find(|f| f["severity"] == "error"))
        .expect("an error");
    assert_eq!(report["valid"], false);
    assert!(finding["line"].as_u64() > Some(0) && finding["column"].as_u64() > Some(0), "{finding}");
    assert!(said.out.contains(finding["code"].as_str().expect("a code")), "{}", said.out);
}

/// [K1] [C2, P6] Load, start, list, show, decide, journal, events against a server, with a worker process; both end in order when asked.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_is_driven_from_the_command_line() {
    let place = Place::new("true", true);
    let dev = Dev::start(&place.text("data")).await;
    let worker = granary(&["worker", "--config", &place.text("three.worker.yaml"), "--server", &dev.url])
        .spawn()
        .expect("starts");

    dev.say(&["definitions", "load", &place.text("three.yaml")]).await.ended_with(0);
    let list = dev.say(&["definitions", "list", "--format", "json"]).await.ended_with(0).json();
    assert_eq!(list["versions"][0]["definitionId"], "three");

    let start = [
        "runs",
        "start",
        "three",
        "--input",
        &place.text("input.json"),
        "--key",
        "k1",
        "--user",
        "ada",
        "--format",
        "json",
    ];
    let started = dev.say(&start).await.ended_with(0).json();
    let run = started["run"]["runId"].as_str().expect("an id").to_owned();
    let again = dev.say(&start).await.ended_with(0).json();
    assert_eq!((again["run"]["runId"].as_str(), again["repeated"].as_bool()), (Some(run.as_str()), Some(true)));

    // Until the person is asked.
    dev.until_step(&run, "ask", "WaitingForHuman").await;
    let list = dev.say(&["approvals", "list", "--run", &run, "--format", "json"]).await.ended_with(0).json();
    let approval = list["approvals"][0]["approvalId"].as_str().expect("an approval").to_owned();
    let said = dev.say(&["runs", "list", "--waiting-on", "human"]).await.ended_with(0);
    assert!(said.out.contains(&run), "{}", said.out);
    let said = dev.say(&["runs", "show", &run]).await.ended_with(0);
    assert!(said.out.contains("WaitingForHuman") && said.out.contains("first"), "{}", said.out);
    dev.say(&["approvals", "approve", &approval, "--comment", "fine", "--by", "tester"]).await.ended_with(0);
    let said = dev.say(&["runs", "watch", &run]).await.ended_with(0);
    assert!(said.out.contains("third"), "{}", said.out);
    // Decided is decided.
    dev.say(&["approvals", "reject", &approval, "--version", "1"]).await.ended_with(1);

    let journal = dev.say(&["runs", "journal", &run, "--format", "json"]).await.ended_with(0).json();
    let entries = journal["entries"].as_array().expect("entries");
    let types: Vec<&str> = entries.iter().filter_map(|e| e["type"].as_str()).collect();
    assert_eq!(types.iter().filter(|t| **t == "AttemptOutcomeRecorded").count(), 3);
    assert_eq!((types.first(), types.last()), (Some(&"RunAccepted"), Some(&"RunCompleted")));
    assert_eq!(entries[0]["by"], "ada", "{journal}");
    assert!(entries.iter().any(|e| e["type"] == "ApprovalDecided" && e["by"] == "tester"), "{journal}");

    let tail = [
        "events",
        "tail",
        "--from",
        "earliest",
        "--run",
        &run,
        "--type",
        "workflow-run-completed",
        "--limit",
        "1",
        "--format",
        "json",
    ];
    let event = dev.say(&tail).await.ended_with(0).json();
    assert_eq!(event["type"], "workflows.runs.v1.workflow-run-completed");
    // Another tenant sees nothing of it.
    dev.say(&["runs", "show", &run, "--tenant", "other"]).await.ended_with(1);

    interrupt(&worker, rustix::process::Signal::TERM);
    Said::of(&soon(worker.wait_with_output()).await.expect("ends")).ended_with(0);
    interrupt(&dev.child, rustix::process::Signal::TERM);
    Said::of(&soon(dev.child.wait_with_output()).await.expect("ends")).ended_with(0);
}

/// [R12] [P7] A cancelled run has an exit code of its own, and the journal says who cancelled it.
#[tokio::test(flavor = "multi_thread")]
async fn a_cancelled_run_ends_the_watch_with_four() {
    let run = a_run();
    let run = run.as_str();
    let place = Place::new("true", true);
    let dev = Dev::start(&place.text("data")).await;
    dev.say(&["definitions", "load", &place.text("three.yaml")]).await.ended_with(0);
    // Nobody works, so it waits for a worker.
    let started = dev.say(&["runs", "start", "three", "--run-id", run, "--format", "json"]).await.ended_with(0).json();
    assert_eq!(started["run"]["runId"], run);
    let said = dev.say(&["runs", "list", "--waiting-on", "worker", "--queue", "tool:first"]).await.ended_with(0);
    assert!(said.out.contains(run), "{}", said.out);
    dev.say(&["runs", "cancel", run, "--reason", "not needed", "--user", "Zoë"]).await.ended_with(0);
    let journal = dev.say(&["runs", "journal", run, "--format", "json"]).await.ended_with(0).json();
    let by = |entry: &str| {
        let found = journal["entries"].as_array().and_then(|all| all.iter().find(|e| e["type"] == entry));
        found.map(|e| e["by"].clone()).unwrap_or_default()
    };
    // Who is not named is the user of the machine, here the one of the environment.
    assert_eq!((by("RunAccepted"), by("RunCancelRequested")), ("tester".into(), "Zoë".into()), "{journal:#}");
    dev.say(&["runs", "watch", run]).await.ended_with(4);
    dev.say(&["runs", "show", "not-an-id"]).await.ended_with(2);
    dev.say(&["runs", "show", "01934c7e-0000-7000-8000-00000000dead"]).await.ended_with(1);
}

/// A small repository that a search finds nothing doubtful in.
fn clean_repository() -> TempDir {
    let dir = tempfile::tempdir().expect("dir");
    let file = |name: &str, text: &str| std::fs::write(dir.path().join(name), text).expect("writes");
    file("README.md", "# Clean\n");
    file("LICENSE", "free\n");
    file("lib.rs", "pub fn one() -> u8 { 1 }\n\n#[test]\nfn it_is_one() { assert_eq!(one(), 1) }\n");
    dir
}

fn assess(repository: &Path, place: &TempDir, more: &[&str]) -> Command {
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples");
    let input = serde_json::json!({ "repository": repository, "outputDirectory": place.path().join("out") });
    std::fs::write(place.path().join("input.json"), input.to_string()).expect("writes");
    let mut command = granary(&["run"]);
    command.arg(examples.join("repository-assessment.yaml")).arg("--input").arg(place.path().join("input.json"));
    command.arg("--data").arg(place.path().join("data")).args(more);
    command
}

/// [R3, L8] The example does real work. Where the evidence is clear nobody is asked, and a report is there at the end.
#[tokio::test(flavor = "multi_thread")]
async fn the_example_assesses_a_clean_repository_without_asking() {
    let (repository, place) = (clean_repository(), tempfile::tempdir().expect("dir"));
    let output = soon(assess(repository.path(), &place, &["--decide", "wait"]).output()).await.expect("runs");
    let said = Said::of(&output).ended_with(0);
    let report = place.path().join("out/assessment-report.md");
    assert!(std::fs::read_to_string(&report).expect("the report").contains("Proposed without a review."));
    let lines: Vec<&str> =
        said.out.lines().filter(|line| line.contains("review") && line.contains("Skipped")).collect();
    assert_eq!(lines.len(), 1, "{}", said.out);
    assert!(
        said.out.lines().any(|line| line.starts_with("report ") && line.contains("assessment-report.md")),
        "{}",
        said.out
    );
}

/// [R3, R8, R11, L8] Where it is doubtful a person is asked, and a rejection takes back what was written.
#[tokio::test(flavor = "multi_thread")]
async fn the_example_asks_where_it_is_not_sure() {
    for (decision, code, file) in [("approve", 0, Some("assessment-report.md")), ("reject", 1, None)] {
        let (repository, place) = (clean_repository(), tempfile::tempdir().expect("dir"));
        let doubtful = "pub fn two() -> u8 { Some(2).unwrap() }\npub fn three() -> u8 { panic!(\"no\") }\n";
        std::fs::write(repository.path().join("more.rs"), doubtful).expect("writes");
        let output = soon(assess(repository.path(), &place, &["--decide", decision]).output()).await.expect("runs");
        let said = Said::of(&output).ended_with(code);
        let left: Vec<String> = std::fs::read_dir(place.path().join("out"))
            .expect("out")
            .map(|e| e.expect("entry").file_name().into_string().expect("name"))
            .collect();
        assert_eq!(left, file.iter().map(|f| (*f).to_owned()).collect::<Vec<_>>(), "{}", said.out);
        assert_eq!(said.out.contains("discard-draft"), decision == "reject", "{}", said.out);
    }
}

/// [R5, R6, R7, R9] The tour: fan-out and join, timer, loop, sub-workflow.
#[tokio::test(flavor = "multi_thread")]
async fn the_feature_tour_comes_to_its_end() {
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples");
    let place = tempfile::tempdir().expect("dir");
    let mut command = granary(&["run", "--format", "json"]);
    command.arg(examples.join("feature-tour.yaml")).arg("--input").arg(examples.join("feature-tour-input.json"));
    command.arg("--data").arg(place.path());
    let graph = Said::of(&soon(command.output()).await.expect("runs")).ended_with(0).json();
    assert_eq!(graph["output"]["leaflet"], "[ *** GRANARY SILO GRAIN SHEAF *** ]");
    let steps = graph["stepRuns"].as_array().expect("steps");
    let number = |id: &str| steps.iter().filter(|s| s["stepId"] == id && s["state"] == "Succeeded").count();
    assert_eq!((number("measure"), number("polish"), number("pause"), number("print")), (4, 3, 1, 1));
}
