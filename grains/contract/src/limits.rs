//! Every bound that has a name. Bytes are bytes, times are milliseconds.

/// A name: tenant, grain kind, step id, definition id, queue. Bytes.
pub const NAME_BYTES_MAX: usize = 128;
/// One row's key inside its table.
pub const ROW_KEY_BYTES_MAX: usize = 256;
/// One JSON value that a caller hands in or a worker reports: input, output, decision.
pub const PAYLOAD_BYTES_MAX: usize = 1024 * 1024;
/// Text for people: a reason, a comment, a failure's message. Bytes.
pub const TEXT_BYTES_MAX: usize = 16 * 1024;
/// One workflow document.
pub const DOCUMENT_BYTES_MAX: usize = 1024 * 1024;
/// One gRPC message or HTTP body. Above twice the payload, since one turn may carry input and output.
pub const MESSAGE_BYTES_MAX: usize = 4 * 1024 * 1024;
/// One log entry: one turn's rows. A turn above this is refused before it is proposed.
pub const ENTRY_BYTES_MAX: usize = 16 * 1024 * 1024;
/// What the engine makes in one turn: values, each copy counted, and the rows and events of its step runs. Below an entry by
/// what it does not count. Beyond it a step fails, so that the run moves. Bytes.
pub const TURN_BYTES_MAX: usize = 12 * 1024 * 1024;
/// Values of one run in all (inputs, outputs, elements): an activation holds them in memory. The run fails beyond it. Bytes.
pub const RUN_BYTES_MAX: usize = 256 * 1024 * 1024;
/// JSON nesting of any value we parse.
pub const JSON_DEPTH_MAX: usize = 64;
/// Steps in one definition.
pub const STEPS_MAX: usize = 2_000;
/// Edges in one definition.
pub const EDGES_MAX: usize = 10_000;
/// Messages that may wait at one activation.
pub const ACTIVATION_QUEUE_MAX: usize = 64;
/// Calls in progress on one silo.
pub const CALLS_IN_PROGRESS_MAX: usize = 8_192;
/// Work items that wait for a worker, a shard; beyond that they wait as rows only and are offered again by the sweep.
pub const QUEUED_WORK_MAX: usize = 100_000;
/// Turns proposed and not yet committed, a shard.
pub const COMMITS_IN_FLIGHT_MAX: usize = 4_096;
/// Events held for one subscriber that has not acknowledged.
pub const SUBSCRIBER_WINDOW_MAX: usize = 1_024;
/// Rows in one page of any list.
pub const PAGE_MAX: usize = 500;
/// How deep sub-workflows may nest.
pub const SUBWORKFLOW_DEPTH_MAX: u32 = 8;
/// Step runs of one run, over all iterations and branches; the run fails beyond it.
pub const STEP_RUNS_MAX: usize = 200_000;
/// A lease without renewal.
pub const LEASE_MS: u64 = 45_000;
/// How often a worker renews.
pub const LEASE_RENEW_MS: u64 = 15_000;
/// Facts handled in one turn (authority → engine → authority …) before the rest waits for the next.
pub const FACTS_PER_TURN_MAX: usize = 10_000;
/// Delay between two attempts, whatever the backoff says.
pub const BACKOFF_MS_MAX: u64 = 24 * 3_600 * 1_000;
/// Idle time after which an activation is dropped.
pub const IDLE_MS: u64 = 60_000;
