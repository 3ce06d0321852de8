//! The worker against a silo that is a few lines of this file: what it reports, what it keeps over a lost connection and over
//! its own death, and how it stops.

use granary::worker::{Command, Handler, HttpCall, Journal, Outcome, Work, Worker, WorkerOptions};
use granary_proto::v1::workers_server::{Workers, WorkersServer};
use granary_proto::v1::{self, server_message::Message as FromServer, worker_message::Message as ToServer};
use granary_proto::wire::Json;
use std::path::Path;
use std::sync::{Arc, LazyLock};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::sync::{Mutex, Notify, mpsc};
use tokio::task::JoinHandle;
use tokio_stream::wrappers::{ReceiverStream, TcpListenerStream};
use tokio_util::sync::CancellationToken;
use tonic::{Request, Response, Status, Streaming};
use uuid::Uuid;

/// Nothing here takes long on a quiet machine; what does not come by then never will.
const PATIENCE: Duration = Duration::from_secs(90);

async fn soon<T>(what: &str, future: impl Future<Output = T>) -> T {
    let late = |_| panic!("{what} did not come within {} s", PATIENCE.as_secs());
    tokio::time::timeout(PATIENCE, future).await.unwrap_or_else(late)
}

/// One session as the silo sees it.
struct Line {
    from_worker: Streaming<v1::WorkerMessage>,
    to_worker: mpsc::Sender<Result<v1::ServerMessage, Status>>,
}

/// Accepts sessions and hands them to the test.
struct FakeSilo {
    sessions: mpsc::Sender<Line>,
}

#[tonic::async_trait]
impl Workers for FakeSilo {
    type SessionStream = ReceiverStream<Result<v1::ServerMessage, Status>>;

    async fn session(
        &self,
        request: Request<Streaming<v1::WorkerMessage>>,
    ) -> Result<Response<Self::SessionStream>, Status> {
        assert_eq!(request.metadata().get("x-granary-tenant").and_then(|v| v.to_str().ok()), Some("t1"));
        let (to_worker, messages) = mpsc::channel(64);
        let line = Line { from_worker: request.into_inner(), to_worker };
        self.sessions.send(line).await.map_err(|_| Status::unavailable("the test is over"))?;
        Ok(Response::new(ReceiverStream::new(messages)))
    }
}

struct Silo {
    url: String,
    sessions: mpsc::Receiver<Line>,
}

impl Silo {
    async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("port");
        let url = format!("http://{}", listener.local_addr().expect("address"));
        let (sessions, accepted) = mpsc::channel(4);
        let service = WorkersServer::new(FakeSilo { sessions });
        tokio::spawn(
            tonic::transport::Server::builder()
                .add_service(service)
                .serve_with_incoming(TcpListenerStream::new(listener)),
        );
        Self { url, sessions: accepted }
    }

    /// The next session, with the worker's hello.
    async fn session(&mut self) -> (Line, v1::Hello) {
        let mut line = soon("a session", self.sessions.recv()).await.expect("a session");
        let ToServer::Hello(hello) = line.next().await else { panic!("hello comes first") };
        line.send(FromServer::Welcome(v1::Welcome { silo: "fake".to_owned(), lease_ms: 45_000, renew_ms: 15_000 }))
            .await;
        (line, hello)
    }

    fn worker(&self) -> Worker {
        Worker::new(WorkerOptions {
            servers: vec![self.url.clone()],
            tenant: "t1".to_owned(),
            capacity: 4,
            drain: Duration::from_secs(10),
        })
    }
}

impl Line {
    async fn next(&mut self) -> ToServer {
        soon("a word of the worker", self.heard()).await
    }

    async fn heard(&mut self) -> ToServer {
        self.from_worker.message().await.expect("stream").expect("a message").message.expect("a kind")
    }

    async fn send(&self, message: FromServer) {
        self.to_worker.send(Ok(v1::ServerMessage { message: Some(message) })).await.expect("the worker listens");
    }

    async fn assign(&self, assignment: v1::Assignment) {
        self.send(FromServer::Assignments(v1::Assignments { assignments: vec![assignment] })).await;
    }

    /// The next reports; renewals are answered on the way. They come for ever, so it is the whole that has a deadline.
    async fn reports(&mut self) -> Vec<v1::Report> {
        soon("a report", async {
            loop {
                match self.heard().await {
                    ToServer::Reports(reports) => return reports.reports,
                    ToServer::Renew(_) => self.renewed(&[]).await,
                    other => panic!("expected reports, but found {other:?}"),
                }
            }
        })
        .await
    }

    async fn report(&mut self) -> v1::Report {
        let mut reports = self.reports().await;
        assert_eq!(reports.len(), 1, "{reports:?}");
        reports.remove(0)
    }

    async fn renewed(&self, lost: &[&str]) {
        let lost = lost.iter().map(|id| (*id).to_owned()).collect();
        self.send(FromServer::RenewResult(v1::RenewResult { lost })).await;
    }

    async fn accept(&self, report: &v1::Report) {
        self.answer(v1::ReportResult { attempt_id: report.attempt_id.clone(), accepted: true, ..Default::default() })
            .await;
    }

    async fn answer(&self, result: v1::ReportResult) {
        self.send(FromServer::ReportResults(v1::ReportResults { results: vec![result] })).await;
    }
}

/// The id of this test's attempt `n`. No other test and no other process has it: a worker's next life stops everything on the
/// machine that works on its attempt, by this id.
fn attempt(n: u32) -> String {
    static PROCESS: LazyLock<Uuid> = LazyLock::new(Uuid::new_v4);
    let test = std::thread::current().name().unwrap_or_default().to_owned();
    Uuid::new_v5(&PROCESS, format!("{test} {n}").as_bytes()).to_string()
}

/// The state folder of a worker that has just ended. A process that another test starts in this moment has a copy of all that is
/// open here, locks too, until its program begins.
async fn reopened(folder: &Path) -> Journal {
    soon("the end of the lock", async {
        loop {
            match Journal::open(folder) {
                Err(granary::worker::Error::StateInUse(_)) => tokio::time::sleep(Duration::from_millis(5)).await,
                opened => return opened.expect("journal"),
            }
        }
    })
    .await
}

fn assignment(n: u32, name: &str, input: &str) -> v1::Assignment {
    v1::Assignment {
        attempt_id: attempt(n),
        run_id: Uuid::from_u128(1_000).to_string(),
        step_id: "s".to_owned(),
        kind: "Tool".to_owned(),
        name: name.to_owned(),
        action_class: "shared-write".to_owned(),
        input: Some(Json::new(input)),
        attempt: 1,
        lease_token: format!("token-{n}").into_bytes(),
        idempotency_key: format!("key-{n}"),
        ..Default::default()
    }
}

fn start(worker: Worker) -> (JoinHandle<Result<(), granary::worker::Error>>, CancellationToken) {
    let stop = CancellationToken::new();
    (tokio::spawn(worker.run(stop.clone())), stop)
}

/// Answers the goodbye and waits for the worker's end. A worker that holds something renews for ever, so it is the whole that has
/// a deadline.
async fn finish(mut line: Line, running: JoinHandle<Result<(), granary::worker::Error>>, stop: CancellationToken) {
    stop.cancel();
    let goodbye = async {
        loop {
            match line.from_worker.message().await {
                Ok(Some(v1::WorkerMessage { message: Some(ToServer::Renew(_)) })) => {
                    // It may be gone already, if this was an earlier renewal.
                    let answer = FromServer::RenewResult(v1::RenewResult::default());
                    let _ = line.to_worker.send(Ok(v1::ServerMessage { message: Some(answer) })).await;
                }
                Ok(Some(_)) => {}
                Ok(None) | Err(_) => break,
            }
        }
    };
    soon("the worker's goodbye", goodbye).await;
    soon("the worker's end", running).await.expect("no panic").expect("a clean end");
}

/// As near to a kill as one process can come: the task is gone, and no word was sent.
async fn kill(running: JoinHandle<Result<(), granary::worker::Error>>) {
    running.abort();
    let _ = soon("the end of the worker's task", running).await;
}

fn outcome(report: &v1::Report) -> (String, String) {
    let text = match (&report.failure, &report.output) {
        (Some(failure), _) => format!("{}: {}", failure.class, failure.message),
        (None, Some(output)) => String::from_utf8_lossy(&output.text).into_owned(),
        (None, None) => String::new(),
    };
    (report.outcome.clone(), text)
}

/// What one handler makes of one attempt, by the real path.
async fn outcome_of(handler: impl Handler, assignment: v1::Assignment) -> (String, String) {
    let mut silo = Silo::start().await;
    let (running, stop) = start(silo.worker().serve(format!("tool:{}", assignment.name), handler));
    let (mut line, _) = silo.session().await;
    line.assign(assignment).await;
    let report = line.report().await;
    line.accept(&report).await;
    finish(line, running, stop).await;
    outcome(&report)
}

fn sh(script: &str) -> Command {
    let mut command = Command::new(["sh", "-c", script], std::env::temp_dir());
    command.environment = vec![("PATH".to_owned(), std::env::var("PATH").unwrap_or_default())];
    command
}

/// [C3] The hello names queues and capacity; an outcome carries the lease token, and is kept until it is taken.
#[tokio::test]
async fn an_outcome_is_offered_until_it_is_taken_over_lost_connections_too() {
    let mut silo = Silo::start().await;
    let (running, stop) =
        start(silo.worker().serve("tool:echo", |work: Work| async move { Outcome::Succeeded(work.input) }));
    let (mut line, hello) = silo.session().await;
    assert_eq!((hello.queues, hello.capacity, hello.held.len()), (vec!["tool:echo".to_owned()], 4, 0));
    line.assign(assignment(1, "echo", "{\"a\":1}")).await;
    let report = line.report().await;
    assert_eq!(outcome(&report), ("Succeeded".to_owned(), "{\"a\":1}".to_owned()));
    assert_eq!(report.lease_token, b"token-1");
    // "Not now" is answered by offering it again on the same stream.
    line.answer(v1::ReportResult { attempt_id: report.attempt_id.clone(), retry: true, ..Default::default() }).await;
    assert_eq!(line.report().await, report);
    drop(line);
    let (mut line, hello) = silo.session().await;
    let held: Vec<_> = hello.held.iter().map(|h| (h.attempt_id.clone(), h.lease_token.clone())).collect();
    assert_eq!(held, [(report.attempt_id.clone(), b"token-1".to_vec())]);
    assert_eq!(line.report().await, report);
    line.accept(&report).await;
    finish(line, running, stop).await;
}

/// [C3] A repeated assignment is done once.
#[tokio::test]
async fn an_attempt_assigned_twice_is_done_once() {
    let mut silo = Silo::start().await;
    let (begun, go) = (Arc::new(Mutex::new(0)), Arc::new(Notify::new()));
    let (count, wait) = (begun.clone(), go.clone());
    let (running, stop) = start(silo.worker().serve("tool:slow", move |_: Work| {
        let (count, wait) = (count.clone(), wait.clone());
        async move {
            *count.lock().await += 1;
            wait.notified().await;
            Outcome::succeeded(&"done")
        }
    }));
    let (mut line, _) = silo.session().await;
    line.assign(assignment(1, "slow", "1")).await;
    line.assign(assignment(1, "slow", "1")).await;
    go.notify_one();
    let report = line.report().await;
    line.accept(&report).await;
    finish(line, running, stop).await;
    assert_eq!(*begun.lock().await, 1);
}

/// [C3] A lost lease stops the work, and nothing is reported for it.
#[tokio::test]
async fn an_attempt_that_is_lost_is_stopped_and_not_reported() {
    let mut silo = Silo::start().await;
    let begun = Arc::new(Notify::new());
    let tell = begun.clone();
    let (running, stop) = start(
        silo.worker()
            .serve("tool:long", move |work: Work| {
                let tell = tell.clone();
                async move {
                    tell.notify_one();
                    work.interrupted().await;
                    Outcome::Cancelled("stopped".to_owned())
                }
            })
            .serve("tool:echo", |work: Work| async move { Outcome::Succeeded(work.input) }),
    );
    let (mut line, _) = silo.session().await;
    line.assign(assignment(1, "long", "1")).await;
    soon("the handler's begin", begun.notified()).await;
    let id = attempt(1);
    line.renewed(&[id.as_str()]).await;
    line.assign(assignment(2, "echo", "2")).await;
    let report = line.report().await;
    assert_eq!(report.attempt_id, attempt(2));
    line.accept(&report).await;
    // The goodbye comes only when nothing is held, so the stopped one is over too.
    finish(line, running, stop).await;
}

/// [C4] An interrupt ends a command and all it started, and is reported as Cancelled.
#[tokio::test]
async fn an_interrupt_ends_the_command() {
    let dir = tempfile::tempdir().expect("dir");
    let mut silo = Silo::start().await;
    let mark = dir.path().join("begun");
    let script = format!("echo begun > {}; exec sleep 600", mark.display());
    let (running, stop) = start(silo.worker().serve("tool:sleep", sh(&script)));
    let (mut line, _) = silo.session().await;
    line.assign(assignment(1, "sleep", "1")).await;
    written(&mark).await;
    let interrupt = v1::Interrupt { attempt_id: attempt(1), reason: "cancelled".to_owned() };
    line.send(FromServer::Interrupt(interrupt)).await;
    let report = line.report().await;
    assert_eq!(report.outcome, "Cancelled");
    line.accept(&report).await;
    finish(line, running, stop).await;
}

/// A command has written a whole line into the file: a shell makes the file before it writes. One that is stopped in between
/// leaves no trace of itself, and the next one takes itself for the first.
async fn written(path: &Path) {
    soon("a line of the command", async {
        while !std::fs::read_to_string(path).is_ok_and(|text| text.ends_with('\n')) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
}

/// [C4] What a command does, and what comes of it.
#[tokio::test]
async fn a_command_speaks_json_and_exit_codes() {
    for (script, wanted_outcome, wanted) in [
        ("cat", "Succeeded", "{\"n\":7}"),
        ("true", "Succeeded", "null"),
        ("printf '%s' \"\\\"$WORK_IDEMPOTENCY_KEY $WORK_STEP_ID\\\"\"", "Succeeded", "\"key-9 s\""),
        ("echo no such thing >&2; exit 3", "Failed", "ended with exit status: 3: no such thing"),
        ("echo not json", "Failed", "Expected JSON on standard output, but found \"not json\""),
        ("head -c 2000000 /dev/zero", "Failed", "Expected at most 1048576 bytes of output"),
        ("kill -9 $$", "Failed", "signal: 9"),
        // It writes more than a pipe holds before it reads.
        ("head -c 300000 /dev/zero | tr '\\0' ' '; cat", "Succeeded", "{\"n\":7}"),
        // The environment is what the file allows, and not the worker's own.
        ("test -z \"$CARGO_MANIFEST_DIR\"", "Succeeded", "null"),
        // What it leaves behind does not hold it up.
        ("sleep 600 & echo 1", "Succeeded", "1"),
    ] {
        let (found_outcome, found) = outcome_of(sh(script), assignment(9, "t", "{\"n\":7}")).await;
        assert_eq!(found_outcome, wanted_outcome, "{script}: {found}");
        assert!(found.contains(wanted), "{script}: {found}");
        if found_outcome == "Failed" {
            assert!(found.starts_with("tool: "), "{found}");
        }
    }
}

/// [C4]
#[tokio::test]
async fn a_command_that_cannot_start_or_does_not_end_fails_with_its_class() {
    let missing = Command::new(["/no/such/program"], std::env::temp_dir());
    let agent = v1::Assignment { kind: "Agent".to_owned(), ..assignment(1, "t", "1") };
    let mut silo = Silo::start().await;
    let (running, stop) = start(silo.worker().serve("agent:t", missing));
    let (mut line, _) = silo.session().await;
    line.assign(agent).await;
    let report = line.report().await;
    assert!(outcome(&report).1.starts_with("agent: the command /no/such/program could not be started"), "{report:?}");
    line.accept(&report).await;
    finish(line, running, stop).await;

    let mut slow = sh("sleep 600");
    slow.timeout = Some(Duration::from_millis(50));
    let (outcome, text) = outcome_of(slow, assignment(1, "t", "1")).await;
    assert_eq!(outcome, "Failed");
    assert!(text.starts_with("timeout: "), "{text}");
    let of_step = v1::Assignment { timeout_ms: 50, ..assignment(1, "t", "1") };
    let (_, text) = outcome_of(sh("sleep 600"), of_step).await;
    assert!(text.starts_with("timeout: "), "{text}");
}

#[tokio::test]
async fn a_handler_that_panics_fails_its_attempt_only() {
    let broken = |_: Work| async { panic!("broken on purpose") };
    assert_eq!(
        outcome_of(broken, assignment(1, "t", "1")).await,
        ("Failed".to_owned(), "tool: the handler panicked".to_owned())
    );
}

/// A server that gives these answers, one a connection; an empty one is a connection that breaks after the request.
async fn http_server(answers: &'static [&'static str]) -> (String, JoinHandle<Vec<String>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("port");
    let url = format!("http://{}", listener.local_addr().expect("address"));
    let requests = tokio::spawn(async move {
        let mut seen = Vec::new();
        for answer in answers {
            let (mut stream, _) = listener.accept().await.expect("a connection");
            let mut buffer = vec![0; 64 * 1024];
            let mut length = 0;
            // Head and body come in one or two packets.
            while !whole(&buffer[..length]) {
                length += stream.read(&mut buffer[length..]).await.expect("reads");
            }
            seen.push(String::from_utf8_lossy(&buffer[..length]).into_owned());
            stream.write_all(answer.as_bytes()).await.expect("writes");
        }
        seen
    });
    (url, requests)
}

fn whole(request: &[u8]) -> bool {
    let text = String::from_utf8_lossy(request).to_lowercase();
    let Some((head, body)) = text.split_once("\r\n\r\n") else { return false };
    let length = head.lines().find_map(|l| l.strip_prefix("content-length: ")?.parse().ok()).unwrap_or(0);
    body.len() >= length
}

fn call(method: &str, url: &str) -> HttpCall {
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let client = reqwest::Client::builder().no_proxy().pool_max_idle_per_host(0).build().expect("client");
    HttpCall::new(client, method.parse().expect("method"), url)
}

/// [C4] An answer, a refusal, a "come again", and an answer that never came.
#[tokio::test]
async fn an_http_call_tells_what_happened_from_what_may_have_happened() {
    const OK: &str = "HTTP/1.1 200 OK\r\ncontent-length: 7\r\nconnection: close\r\n\r\n{\"b\":2}";
    const BUSY: &str = "HTTP/1.1 503 Busy\r\nretry-after: 0\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";
    const NO: &str = "HTTP/1.1 404 Not Found\r\ncontent-length: 4\r\nconnection: close\r\n\r\ngone";
    const GATEWAY: &str = "HTTP/1.1 504 Gateway Timeout\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";
    let table: [(&str, &'static [&'static str], &str, &str, usize); 7] = [
        ("POST", &[OK], "Succeeded", "{\"b\":2}", 1),
        ("POST", &[BUSY, OK], "Succeeded", "{\"b\":2}", 2),
        ("POST", &[BUSY, BUSY, BUSY], "Failed", "503", 3),
        ("POST", &[NO], "Failed", "404 Not Found: gone", 1),
        ("POST", &[GATEWAY], "Uncertain", "504", 1),
        ("POST", &[""], "Uncertain", "no answer", 1),
        ("GET", &[""], "Failed", "no answer", 1),
    ];
    for (method, answers, wanted_outcome, wanted, requests) in table {
        let (url, server) = http_server(answers).await;
        let (found_outcome, found) =
            outcome_of(call(method, &format!("{url}/things/{{n}}")), assignment(5, "t", "{\"n\":7}")).await;
        assert_eq!(found_outcome, wanted_outcome, "{method} {answers:?}: {found}");
        assert!(found.contains(wanted), "{method} {answers:?}: {found}");
        let seen = soon("the last request", server).await.expect("no panic");
        assert_eq!(seen.len(), requests);
        assert!(
            seen[0].starts_with(&format!("{method} /things/7 ")) && seen[0].contains("idempotency-key: key-5"),
            "{}",
            seen[0]
        );
        assert_eq!(seen[0].ends_with("{\"n\":7}"), method == "POST", "{}", seen[0]);
    }
}

/// [C4] Never sent is certain: it did not happen.
#[tokio::test]
async fn an_http_call_without_a_connection_fails_for_certain() {
    let free = TcpListener::bind("127.0.0.1:0").await.expect("port").local_addr().expect("address");
    let mut nobody = call("POST", &format!("http://{free}"));
    nobody.tries = 1;
    let (outcome, text) = outcome_of(nobody, assignment(1, "t", "1")).await;
    assert_eq!(outcome, "Failed");
    assert!(text.contains("no connection to") && text.contains("(1 tries)"), "{text}");
}

/// [C3, C4] Killed in the middle of a command: the next life stops what is left of it, and does it again if that is harmless,
/// or else says that nobody knows. Neither waits for the lease to run out.
#[tokio::test]
async fn the_next_life_of_a_worker_goes_on_where_the_last_one_was_killed() {
    for (idempotent, wanted) in [(true, "Succeeded"), (false, "Uncertain")] {
        let dir = tempfile::tempdir().expect("dir");
        let (state, pids) = (dir.path().join("state"), dir.path().join("pids"));
        let mut silo = Silo::start().await;
        // The first life never ends by itself; the second one does at once.
        let script = format!("echo $$ >> {0}; test $(wc -l < {0}) -gt 1 || exec sleep 600", pids.display());
        let command = Command { idempotent, ..sh(&script) };
        let worker =
            async |silo: &Silo| silo.worker().serve("tool:t", command.clone()).remember_in(reopened(&state).await);
        let (running, _stop) = start(worker(&silo).await);
        let (line, first) = silo.session().await;
        line.assign(assignment(1, "t", "1")).await;
        written(&pids).await;
        kill(running).await;
        drop(line);

        let (running, stop) = start(worker(&silo).await);
        let (mut line, second) = silo.session().await;
        assert_eq!(second.worker_id, first.worker_id);
        assert_eq!(second.held.len(), 1, "it says what it holds");
        let report = line.report().await;
        assert_eq!((report.outcome.as_str(), report.lease_token.as_slice()), (wanted, &b"token-1"[..]));
        line.accept(&report).await;
        finish(line, running, stop).await;
        let begun = std::fs::read_to_string(&pids).expect("pids").lines().count();
        assert_eq!(begun, if idempotent { 2 } else { 1 });
        // Nothing is remembered any more.
        let journal = reopened(&state).await;
        assert_eq!(journal.remembered().expect("reads").len(), 0);
    }
}

/// [C3, C4] Done but not reported when it was killed: reported, not done again.
#[tokio::test]
async fn a_finished_outcome_survives_the_worker() {
    let dir = tempfile::tempdir().expect("dir");
    let mut silo = Silo::start().await;
    let effects = dir.path().join("effects");
    let command = sh(&format!("echo done >> {}; echo 1", effects.display()));
    let worker =
        async |silo: &Silo| silo.worker().serve("tool:t", command.clone()).remember_in(reopened(dir.path()).await);
    let (running, _stop) = start(worker(&silo).await);
    let (mut line, _) = silo.session().await;
    line.assign(assignment(1, "t", "1")).await;
    let first = line.report().await;
    kill(running).await;
    drop(line);
    let (running, stop) = start(worker(&silo).await);
    let (mut line, _) = silo.session().await;
    assert_eq!(line.report().await, first);
    line.accept(&first).await;
    finish(line, running, stop).await;
    assert_eq!(std::fs::read_to_string(&effects).expect("effects").lines().count(), 1);
}

/// [FR-098] A worker that the silo will never take says so and ends, instead of trying for ever.
#[tokio::test]
async fn a_refused_worker_ends() {
    struct Refusing;
    #[tonic::async_trait]
    impl Workers for Refusing {
        type SessionStream = ReceiverStream<Result<v1::ServerMessage, Status>>;
        async fn session(
            &self,
            _: Request<Streaming<v1::WorkerMessage>>,
        ) -> Result<Response<Self::SessionStream>, Status> {
            Err(Status::invalid_argument("Expected queues, but found none."))
        }
    }
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("port");
    let url = format!("http://{}", listener.local_addr().expect("address"));
    let server = tonic::transport::Server::builder().add_service(WorkersServer::new(Refusing));
    tokio::spawn(server.serve_with_incoming(TcpListenerStream::new(listener)));
    let options =
        WorkerOptions { servers: vec![url], tenant: "t1".to_owned(), capacity: 1, drain: Duration::from_secs(1) };
    let worker = Worker::new(options).serve("tool:t", |work: Work| async move { Outcome::Succeeded(work.input) });
    let error = soon("the refusal", worker.run(CancellationToken::new())).await.expect_err("refused");
    assert_eq!(error.to_string(), "the server refuses this worker: Expected queues, but found none.");
}
