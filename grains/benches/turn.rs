//! What one report costs a run grain: the decision alone, with the message decoded and the rows encoded, without the commit.
//!
//! `cargo bench -p grains --bench turn`. A line of six steps; then a turn late in a long run against an early one, whose
//! ratio is printed and should stay near 1: in a loop (990th round against the 10th), and in a wide Fanout (9,900th answer
//! against the 10th).

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use grain_contract::{
    Context, Decision, Effect, Grain, GrainId, GrainKind, Lease, Message, Method, Offers, QueueName, TenantId,
    Timestamp, Turn,
};
use grains::definition::{Environment, Mode, Plan, load};
use grains::engine::EngineOptions;
use grains::kinds::methods::run;
use grains::kinds::{KindOptions, RunMode, grain_types};
use granary_proto::wire::Json;
use granary_proto::{calls, v1};
use prost::Message as _;
use std::collections::VecDeque;
use std::hint::black_box;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

const RUN: &str = "01900000-0000-7000-8000-000000000001";
/// 300 bytes, as in the load test.
const PAYLOAD_BYTES: usize = 300;
const ROUNDS: u64 = 1_000;
const BRANCHES: u64 = 10_000;

/// A worker that always has a place.
struct Places(u128);

impl Offers for Places {
    fn take(&mut self, _: &QueueName) -> Option<Lease> {
        self.0 += 1;
        Some(Lease { worker: "w1".into(), token: self.0.to_be_bytes() })
    }
}

/// One run in memory, and what its worker holds.
struct Run {
    grain: Box<dyn Grain>,
    plan: Arc<Plan>,
    places: Places,
    now: Timestamp,
    work: VecDeque<(v1::Assignment, Lease)>,
}

impl Run {
    fn of(document: &str, input: &str) -> Self {
        let mut plan = load(document, Mode::Draft, &Environment::default()).plan.expect("a draft without errors");
        plan.release_id = "bench@1".into();
        let options = EngineOptions { max_fanout: BRANCHES as u32, ..EngineOptions::default() };
        let types = grain_types(KindOptions::fixed(RunMode::Bundled, options));
        let kind = types.iter().find(|t| t.kind() == GrainKind::new(run::KIND)).expect("the run's kind");
        let id = GrainId::new(&TenantId::new("bench"), &GrainKind::new(run::KIND), RUN);
        let grain = kind.load(&id, Vec::new()).expect("a new run");
        let now = Timestamp(1_790_000_000_000);
        let mut run = Self { grain, plan: Arc::new(plan), places: Places(0), now, work: VecDeque::new() };
        let submit = calls::Submit {
            request: Some(v1::SubmitRunRequest {
                definition_release_id: "bench@1".into(),
                input: Some(Json::new(input)),
                ..Default::default()
            }),
            release_id: "bench@1".into(),
            ..Default::default()
        };
        run.turn(run::SUBMIT, &submit.encode_to_vec());
        run
    }

    /// Reports the oldest open attempt; how long its turn took.
    fn report(&mut self, output: &str) -> Duration {
        let (assignment, lease) = self.work.pop_front().expect("an open attempt");
        let report = v1::Report {
            attempt_id: assignment.attempt_id,
            run_id: RUN.into(),
            lease_token: lease.token.to_vec(),
            outcome: "Succeeded".into(),
            output: Some(Json::new(output)),
            ..Default::default()
        };
        let body = calls::ReportCall { report: Some(report) }.encode_to_vec();
        self.now = self.now.plus_ms(1);
        self.turn(run::REPORT, &body)
    }

    fn turn(&mut self, method: Method, body: &[u8]) -> Duration {
        let mut took = Duration::ZERO;
        let turn = loop {
            let mut cx = Context { now: self.now, entropy: [0; 16], offers: &mut self.places };
            let begun = Instant::now();
            let decision = black_box(self.grain.handle(&mut cx, &Message::Call { method, body }));
            took += begun.elapsed();
            match decision {
                Decision::Need(need) => self.grain.supply(&need, Ok(self.plan.clone())),
                Decision::Commit(turn) => break turn,
                Decision::Read(_) => panic!("a turn changes something"),
                Decision::Reject(rejection) => panic!("refused: {rejection}"),
            }
        };
        self.take_work(turn);
        took
    }

    fn take_work(&mut self, turn: Turn) {
        for effect in turn.effects {
            if let Effect::Offer(item) = effect {
                let assignment = v1::Assignment::decode(item.body.as_slice()).expect("an assignment");
                self.work.push_back((assignment, item.lease.expect("there is always a place")));
            }
        }
    }
}

fn payload() -> String {
    format!("{{\"text\":\"{}\"}}", "x".repeat(PAYLOAD_BYTES - 11))
}

fn line(c: &mut Criterion) {
    let steps: String = (1..=6).map(|n| format!("  - {{ id: s{n}, kind: Tool, tool: echo }}\n")).collect();
    let edges: String = (1..6).map(|n| format!("  - {{ from: s{n}, to: s{} }}\n", n + 1)).collect();
    let document = format!("workflow: line\nversion: '1'\nsteps:\n{steps}edges:\n{edges}");
    let payload = payload();
    let mut group = c.benchmark_group("line of six");
    group.throughput(Throughput::Elements(1));
    group.bench_function("report", |b| {
        b.iter_custom(|turns| {
            let mut took = Duration::ZERO;
            let mut left = turns;
            while left > 0 {
                let mut run = Run::of(&document, &payload);
                for _ in 0..left.min(6) {
                    took += run.report(&payload);
                    left -= 1;
                }
            }
            took
        });
    });
    group.finish();
}

/// Time and number of the turns in two windows of the same runs.
#[derive(Default)]
struct Windows {
    early: (Duration, u32),
    late: (Duration, u32),
}

impl Windows {
    fn add(&mut self, at: u64, took: Duration, early: &Range<u64>, late: &Range<u64>) {
        for (range, sum) in [(early, &mut self.early), (late, &mut self.late)] {
            if range.contains(&at) {
                sum.0 += took;
                sum.1 += 1;
            }
        }
    }

    fn print(&self, what: &str) {
        let mean = |sum: (Duration, u32)| sum.0.as_secs_f64() / f64::from(sum.1.max(1));
        let (early, late) = (mean(self.early), mean(self.late));
        println!("{what}: {:.2} µs early, {:.2} µs late, ratio {:.2}", early * 1e6, late * 1e6, late / early);
    }
}

/// Runs whole runs, and gives criterion the late turns.
fn late_against_early(c: &mut Criterion, name: &str, whole_run: impl Fn(&mut Windows)) {
    let mut windows = Windows::default();
    let mut group = c.benchmark_group(name);
    group.sample_size(10);
    group.bench_function("late report", |b| {
        b.iter_custom(|turns| {
            let (before, measured) = windows.late;
            let mut counted = 0;
            while counted < turns {
                whole_run(&mut windows);
                counted = u64::from(windows.late.1 - measured);
            }
            // As many turns as were asked for, each as long as one was in the mean.
            (windows.late.0 - before).mul_f64(turns as f64 / counted as f64)
        });
    });
    group.finish();
    windows.print(name);
}

fn long_loop(c: &mut Criterion) {
    let document = "
workflow: loop
version: '1'
maxLoopIterations: 1000
steps:
  - { id: work, kind: Tool, tool: echo }
  - { id: again, kind: Condition, expression: { var: work.again } }
edges:
  - { from: work, to: again }
  - { from: again, to: work, guard: 'true', isLoopBack: true }
";
    let payload = payload();
    late_against_early(c, "loop, round 990 against 10", |windows| {
        let mut run = Run::of(document, &payload);
        for round in 1..=ROUNDS {
            let took = run.report(&format!("{{\"again\":{}}}", round < ROUNDS));
            windows.add(round, took, &(5..15), &(985..995));
        }
    });
}

fn wide_fan_out(c: &mut Criterion) {
    let document = "
workflow: wide
version: '1'
steps:
  - { id: spread, kind: Fanout, items: { var: input.items } }
  - { id: body, kind: Tool, tool: echo }
  - { id: meet, kind: Join }
edges:
  - { from: spread, to: body }
  - { from: body, to: meet }
";
    let items: Vec<u64> = (0..BRANCHES).collect();
    let input = format!("{{\"items\":{items:?}}}");
    let payload = payload();
    late_against_early(c, "fan-out, answer 9,900 against 10", |windows| {
        let mut run = Run::of(document, &input);
        for answer in 1..=9_910 {
            let took = run.report(&payload);
            windows.add(answer, took, &(5..15), &(9_895..9_905));
        }
    });
}

criterion_group!(benches, line, long_loop, wide_fan_out);
criterion_main!(benches);
