//! A run in short, from its rows or from its grain: what lists and single reads show.

use super::wire;
use crate::definition::Plan;
use crate::engine::Projection;
use crate::kinds::methods::run::table::{AUTHORITY, HEADER};
use crate::run_control::{Authority, RUN_KEY, Submitted, run_of};
use grain_contract::{Corrupt, GrainId, Row};
use granary_proto::wire::{Json, Timestamp};
use granary_proto::{storage, v1};
use prost::Message as _;
use uuid::Uuid;

/// The run of these rows, without its grain; `None` if it was never submitted. `rows` are the loaded tables of the grain;
/// `plan` is its release's, for what it waits for; without it that stays empty.
pub fn summary(id: &GrainId, rows: &[Row], plan: Option<&Plan>) -> Result<Option<v1::Run>, Corrupt> {
    let run_id = Uuid::try_parse(&id.key).map_err(|_| Corrupt { what: "a run's key is not a UUID".into() })?;
    let header = header_of(rows)?;
    if header.definition_release_id.is_empty() {
        return Ok(None);
    }
    let submitted = rows
        .iter()
        .find(|row| row.key.table == AUTHORITY && row.key.key == RUN_KEY)
        .map(|row| wire::value::<storage::AuthorityRow>(row).and_then(run_of))
        .transpose()?;
    let waiting = match plan {
        Some(plan) if header.ended_ms == 0 => {
            let engine: Vec<Row> = rows.iter().filter(|row| row.key.table < AUTHORITY).cloned().collect();
            let projection = Projection::load(id.tenant.as_str(), run_id, engine, Some(plan));
            let projection = projection.map_err(|corrupt| Corrupt { what: corrupt.to_string() })?;
            waiting(&projection, plan, &Authority::load(id.tenant.as_str(), run_id, rows)?)
        }
        _ => Vec::new(),
    };
    let names = Names { tenant: id.tenant.as_str(), run_id };
    Ok(Some(compose(names, submitted.as_ref(), Outline::of_header(header), waiting)))
}

/// Why the run waits: the engine's reasons, with the names of the workers that are at it.
pub(super) fn waiting(projection: &Projection, plan: &Plan, authority: &Authority) -> Vec<v1::StepWaiting> {
    let mut waiting = projection.waiting(plan);
    authority.name_workers(waiting.iter_mut().filter_map(|s| Some((s.step_run_id.as_str(), s.waiting.as_mut()?))));
    waiting
}

/// The engine's header: what is fixed and what moves lie in two rows, whose fields do not overlap.
pub(super) fn header_of(rows: &[Row]) -> Result<storage::RunHeaderRow, Corrupt> {
    let mut header = storage::RunHeaderRow::default();
    for row in rows.iter().filter(|row| row.key.table == HEADER) {
        header
            .merge(row.value.as_slice())
            .map_err(|e| Corrupt { what: format!("a row of table {}: {e}", row.key.table.0) })?;
    }
    Ok(header)
}

pub(super) struct Names<'a> {
    pub tenant: &'a str,
    pub run_id: Uuid,
}

/// What the engine contributes.
#[derive(Default)]
pub(super) struct Outline {
    state: String,
    graph_hash: String,
    release_id: String,
    project_id: String,
    parent_run_id: String,
    accepted_at: Option<Timestamp>,
    ended_at: Option<Timestamp>,
    output: Option<Json>,
    failure: Option<v1::Failure>,
    failed_step_id: String,
    compensated: bool,
    definition_id: String,
    definition_version: String,
}

impl Outline {
    pub fn of_graph(graph: v1::RunGraph) -> Self {
        Self {
            state: graph.state,
            graph_hash: graph.graph_hash,
            release_id: graph.definition_release_id,
            project_id: graph.project_id,
            parent_run_id: String::new(),
            accepted_at: graph.accepted_at,
            ended_at: graph.ended_at,
            output: graph.output,
            failure: graph.failure,
            failed_step_id: graph.failed_step_id,
            compensated: graph.compensated,
            definition_id: graph.definition_id,
            definition_version: graph.definition_version,
        }
    }

    fn of_header(header: storage::RunHeaderRow) -> Self {
        Self {
            state: header.state,
            graph_hash: header.graph_hash,
            release_id: header.definition_release_id,
            project_id: header.project_id,
            parent_run_id: header.parent_run_id,
            accepted_at: Timestamp::from_row(header.accepted_ms),
            ended_at: Timestamp::from_row(header.ended_ms),
            output: (!header.output.is_empty()).then(|| Json::new(header.output)),
            failure: header.failure,
            failed_step_id: header.failed_step_id,
            compensated: header.compensated,
            ..Self::default()
        }
    }
}

/// Both halves as one. Without the authority's half (external Run Control) the engine's word is the state.
pub(super) fn compose(
    names: Names<'_>,
    submitted: Option<&Submitted>,
    outline: Outline,
    waiting: Vec<v1::StepWaiting>,
) -> v1::Run {
    let run = v1::Run {
        run_id: names.run_id.to_string(),
        tenant_id: names.tenant.to_owned(),
        project_id: outline.project_id,
        definition_id: outline.definition_id,
        definition_version: outline.definition_version,
        definition_release_id: outline.release_id,
        graph_hash: outline.graph_hash,
        state: outline.state.clone(),
        accepted_at: outline.accepted_at,
        ended_at: outline.ended_at,
        output: outline.output,
        failure: outline.failure,
        failed_step_id: outline.failed_step_id,
        compensated: outline.compensated,
        waiting,
        client_key: String::new(),
        parent_run_id: outline.parent_run_id,
        cancel_reason: String::new(),
        engine_state: outline.state,
    };
    let Some(submitted) = submitted else { return run };
    v1::Run {
        project_id: submitted.project_id.clone(),
        definition_id: submitted.definition_id.clone(),
        definition_version: submitted.definition_version.clone(),
        definition_release_id: submitted.release_id.clone(),
        state: submitted.state.as_str().into(),
        accepted_at: Timestamp::from_row(submitted.accepted.0),
        ended_at: submitted.ended.and_then(|at| Timestamp::from_row(at.0)),
        client_key: submitted.client_key.clone(),
        parent_run_id: submitted.parent_run_id.map_or_else(String::new, |id| id.to_string()),
        cancel_reason: submitted.cancel_reason.clone(),
        failure: run.failure.or_else(|| submitted.refusal.clone()),
        ..run
    }
}
