//! Numbers of the calls of each grain kind. A number is never used again for something else.

use grain_contract::Method;

/// Kind `run`: one run; the engine's projection and, unless Run Control is external, the bundled authority.
pub mod run {
    use super::Method;
    pub const KIND: &str = "run";
    /// `calls::Submit` → `v1::SubmitRunResponse`
    pub const SUBMIT: Method = Method(1);
    /// `v1::CancelRunRequest` → `v1::Run`
    pub const CANCEL: Method = Method(2);
    /// `v1::DecideApprovalRequest` → `v1::Approval`
    pub const DECIDE: Method = Method(3);
    /// `calls::ReportCall` → `v1::ReportResult`
    pub const REPORT: Method = Method(4);
    /// `calls::Claim` → `calls::ClaimReply`
    pub const CLAIM: Method = Method(5);
    /// `calls::LeaseExpired` → empty
    pub const LEASE_EXPIRED: Method = Method(6);
    /// `v1::GetRunGraphRequest` → `v1::RunGraph`
    pub const GRAPH: Method = Method(7);
    /// `v1::GetRunRequest` → `v1::Run`
    pub const GET: Method = Method(8);
    /// `v1::PlanNextStepsRequest` → `v1::PlanNextStepsResponse`
    pub const PLAN_NEXT: Method = Method(9);
    /// `v1::ListApprovalsRequest` (run_id set) → `v1::ListApprovalsResponse`
    pub const APPROVALS: Method = Method(10);
    /// `calls::ExternalFacts` → `v1::Advanced`
    pub const FACTS: Method = Method(11);
    /// `calls::ChildEnded` → empty
    pub const CHILD_ENDED: Method = Method(12);
    /// `calls::CallRejected` → empty
    pub const CALL_REJECTED: Method = Method(13);
    /// `v1::Observe` → empty
    pub const OBSERVE: Method = Method(14);
    /// `v1::ReprojectRequest` → `v1::RunGraph`. Bundled: from the run's own journal, whose pages the caller passes in as
    /// `v1::ReadJournalResponse`, whole, in one message.
    pub const REPROJECT: Method = Method(15);
    /// empty → empty; the sweep of the shard
    pub const SWEEP: Method = Method(16);
    /// `calls::CancelChild` → empty; from a parent. Remembered if the child was not submitted yet.
    pub const CANCEL_CHILD: Method = Method(17);

    /// Tables. Below 128: loaded at activation.
    pub mod table {
        use grain_contract::Table;
        pub const HEADER: Table = Table(1);
        pub const STEP_RUNS: Table = Table(2);
        pub const COMPENSATION: Table = Table(3);
        pub const FACTS: Table = Table(4);
        /// One row: `storage::RunObservedRow`.
        pub const OBSERVED: Table = Table(5);
        /// Key `run`: `storage::AuthorityRow`. Key `n`: `storage::RunCountersRow`, in both modes.
        pub const AUTHORITY: Table = Table(10);
        /// `storage::AuthorityStepRow`. Key: step run id (16 bytes) for what is asked now; followed by the number (u32
        /// big-endian) for what was asked earlier.
        pub const AUTHORITY_STEPS: Table = Table(11);
        /// Key: number of the first entry, u64 big-endian; value: `storage::JournalRow`.
        pub const JOURNAL: Table = Table(128);
    }
}

/// Kind `release`, key = release id: one immutable published (or draft) definition.
pub mod release {
    use super::Method;
    pub const KIND: &str = "release";
    /// `calls::PutRelease` → `calls::PutReleaseReply`. Same id with another hash: conflict.
    pub const PUT: Method = Method(1);
    /// empty → `calls::PutRelease`
    pub const GET: Method = Method(2);

    pub mod table {
        use grain_contract::Table;
        /// Key: empty; value: `storage::ReleaseRow`.
        pub const RELEASE: Table = Table(1);
    }
}

/// Kind `definition`, key = definition id: its versions.
pub mod definition {
    use super::Method;
    pub const KIND: &str = "definition";
    /// `calls::AddVersion` → empty
    pub const ADD_VERSION: Method = Method(1);
    /// empty → `v1::ListWorkflowDefinitionVersionsResponse`, newest first; not-found if none was ever loaded
    pub const LIST: Method = Method(2);

    pub mod table {
        use grain_contract::Table;
        /// Key: place in the order of loading, u32 big-endian; value: `storage::DefinitionVersionRow`.
        pub const VERSIONS: Table = Table(1);
    }
}

/// Index names (`grain_contract::IndexChange`). `sort` = inverted acceptance time (u64 big-endian of `u64::MAX - ms`), so
/// that a scan gives the newest first.
pub mod index {
    /// Every run; value: empty.
    pub const RUNS: &str = "runs";
    /// Runs that have not ended; value: [`grain_contract::NOTHING_TO_TELL`] if none of its attempts is open, otherwise empty
    /// (empty too for a run of an older build that has none).
    pub const OPEN_RUNS: &str = "open-runs";
    /// Approvals that are pending; sort = request time (u64 big-endian) + approval id bytes; value: approval id.
    pub const PENDING_APPROVALS: &str = "pending-approvals";
    /// Definitions; sort = definition id; value: empty.
    pub const DEFINITIONS: &str = "definitions";
    /// Skills, which are definitions whose id begins with `skill:`; sort = that id; value: empty.
    pub const SKILLS: &str = "skills";
}

/// The `Need` of a run: key = release id, supply = `Arc<definition::Plan>`.
pub const NEED_PLAN: &str = "plan";
/// The `Need` of a child run: key = `definition` or `definition@version`, supply = `Arc<definition::Plan>` of that version
/// (without a version: the newest published one). Its release id is pinned then.
pub const NEED_RELEASE_OF: &str = "release-of";
