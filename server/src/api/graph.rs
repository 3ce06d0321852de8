//! The projection of a run: graph, ready steps, re-projection.

use super::{Api, check, run_grain};
use crate::tenant::Caller;
use grain_contract::{Code, Rejection, limits};
use grains::kinds::methods::run;
use granary_proto::v1;
use prost::Message as _;

/// A page of the graph is kept below this, since the message around it has a bound too. Bytes.
const PAGE_BYTES_MAX: usize = limits::MESSAGE_BYTES_MAX - 64 * 1024;
/// Journal entries that a bundled re-projection reads, at most.
const REPROJECT_ENTRIES_MAX: usize = 1_000_000;

impl Api {
    /// One page of a run's graph. Outputs can be large: a page that would not fit into a message is asked for again with
    /// half as many step runs, and its token goes on behind what it holds.
    pub async fn graph(&self, caller: &Caller, request: &v1::GetRunGraphRequest) -> Result<v1::RunGraph, Rejection> {
        let id = check::id(&request.run_id, "runId")?;
        let mut size = check::page_size(request.page_size);
        if request.page_size == 0 {
            size = limits::PAGE_MAX;
        }
        loop {
            let ask = v1::GetRunGraphRequest {
                run_id: id.to_string(),
                page_token: request.page_token.clone(),
                page_size: u32::try_from(size).unwrap_or(u32::MAX),
            };
            let graph: v1::RunGraph =
                self.call(caller, run_grain(&caller.tenant, id), run::GRAPH, ask.encode_to_vec()).await?;
            if graph.encoded_len() <= PAGE_BYTES_MAX {
                return Ok(graph);
            }
            if graph.step_runs.len() <= 1 {
                return Ok(without_values(graph));
            }
            size = graph.step_runs.len() / 2;
        }
    }

    /// Steps that are ready to dispatch, as of the last applied outcome.
    pub async fn plan_next_steps(
        &self,
        caller: &Caller,
        request: &v1::PlanNextStepsRequest,
    ) -> Result<v1::PlanNextStepsResponse, Rejection> {
        let id = check::id(&request.run_id, "runId")?;
        let ask = v1::PlanNextStepsRequest { run_id: id.to_string(), ..request.clone() };
        self.call(caller, run_grain(&caller.tenant, id), run::PLAN_NEXT, ask.encode_to_vec()).await
    }

    /// Drops the projection and builds it again: bundled from the run's own journal, external from Run Control's.
    pub async fn reproject(&self, caller: &Caller, request: &v1::ReprojectRequest) -> Result<v1::RunGraph, Rejection> {
        let id = check::id(&request.run_id, "runId")?;
        let grain = run_grain(&caller.tenant, id);
        let entries = match (&self.inner.journal, self.bundled()) {
            (_, Ok(())) => self.whole_journal(caller, id).await?,
            (Some(journal), Err(_)) => journal.facts_after(caller, id, 0).await?,
            (None, Err(_)) => {
                let message = "Expected runControlJournal.endpoint to read the facts from, but none is configured.";
                return Err(Rejection::new(Code::WrongState, message));
            }
        };
        let body = v1::ReadJournalResponse { entries, next_after: 0 };
        self.call(caller, grain, run::REPROJECT, body.encode_to_vec()).await
    }

    async fn whole_journal(&self, caller: &Caller, id: uuid::Uuid) -> Result<Vec<v1::JournalEntry>, Rejection> {
        let mut entries = Vec::new();
        let mut after = 0;
        loop {
            let page = self.journal_page(caller, id, after, limits::PAGE_MAX).await?;
            entries.extend(page.entries);
            if entries.len() > REPROJECT_ENTRIES_MAX {
                let message =
                    format!("Expected at most {REPROJECT_ENTRIES_MAX} journal entries, but this run has more.");
                return Err(Rejection::new(Code::TooLarge, message));
            }
            if page.next_after == 0 {
                return Ok(entries);
            }
            after = page.next_after;
        }
    }
}

/// One step run with values so large that no message holds it (a Join of many branches, for example): the values are left
/// out, their size is told in their place, and `GetRun` and the journal have them.
fn without_values(mut graph: v1::RunGraph) -> v1::RunGraph {
    graph.output = None;
    graph.variables = None;
    for step in &mut graph.step_runs {
        if let Some(output) = step.output.take()
            && step.output_ref.is_empty()
        {
            step.output_ref = format!("left-out:{}-bytes", output.text.len());
        }
    }
    graph
}

#[cfg(test)]
mod tests {
    use super::*;
    use granary_proto::wire::Json;

    /// FR-192
    #[test]
    fn values_that_fit_no_message_are_left_out_and_said_to_be() {
        let step = v1::StepRun { output: Some(Json::new("[1,2]")), ..Default::default() };
        let graph = v1::RunGraph { step_runs: vec![step], output: Some(Json::new("1")), ..Default::default() };
        let made = without_values(graph);
        assert_eq!((made.output, made.step_runs[0].output.as_ref()), (None, None));
        assert_eq!(made.step_runs[0].output_ref, "left-out:5-bytes");
    }
}
