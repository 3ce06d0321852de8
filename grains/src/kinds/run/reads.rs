//! Answers from what is committed: the run, its graph, what is ready, its approvals. They change nothing.

use super::stop::Stop;
use super::{RunGrain, methods, summary, wire};
use grain_contract::limits::PAGE_MAX;
use grain_contract::{Code, Decision, Method, Rejection};
use granary_proto::v1;
use prost::Message as _;

pub(super) fn is_read(method: Method) -> bool {
    matches!(method, methods::GRAPH | methods::GET | methods::PLAN_NEXT | methods::APPROVALS)
}

impl RunGrain {
    pub(super) fn read(&mut self, method: Method, body: &[u8]) -> Result<Decision, Stop> {
        if self.release_id.is_empty() {
            let message = format!("Expected a run, but {} is not one.", self.run_id);
            return Err(Rejection::new(Code::NotFound, message).at("runId").into());
        }
        self.ready()?;
        let reply = match method {
            methods::GET => self.view()?.encode_to_vec(),
            methods::GRAPH => self.graph(body)?.encode_to_vec(),
            methods::PLAN_NEXT => self.plan_next(body)?.encode_to_vec(),
            _ => self.list_approvals(body)?.encode_to_vec(),
        };
        Ok(Decision::Read(reply))
    }

    /// The run as Run Control shows it.
    pub(super) fn view(&self) -> Result<v1::Run, Stop> {
        let projection = self.projection()?;
        let plan = self.plan();
        let waiting = match &plan {
            Some(plan) if !projection.is_terminal() => summary::waiting(projection, plan, &self.authority),
            _ => Vec::new(),
        };
        // Without a plan the graph is its header alone, which does not grow with the run.
        let mut graph = projection.graph(None, "", 1);
        if let Some(plan) = &plan {
            graph.definition_id.clone_from(&plan.definition_id);
            graph.definition_version.clone_from(&plan.version);
        }
        let id = summary::Names { tenant: &self.tenant, run_id: self.run_id };
        Ok(summary::compose(id, self.authority.run(), summary::Outline::of_graph(graph), waiting))
    }

    fn graph(&self, body: &[u8]) -> Result<v1::RunGraph, Stop> {
        let request: v1::GetRunGraphRequest = wire::body(body)?;
        if self.projection()?.page_start(&request.page_token).is_none() {
            return Err(wrong_token().into());
        }
        self.graph_page(&request.page_token, request.page_size)
    }

    pub(super) fn graph_page(&self, page_token: &str, page_size: u32) -> Result<v1::RunGraph, Stop> {
        let mut graph = self.projection()?.graph(self.plan().as_deref(), page_token, page_size);
        if let Some(run) = self.authority.run() {
            graph.definition_id.clone_from(&run.definition_id);
            graph.definition_version.clone_from(&run.definition_version);
        }
        let waiting = graph.step_runs.iter_mut().filter_map(|s| Some((s.step_run_id.as_str(), s.waiting.as_mut()?)));
        self.authority.name_workers(waiting);
        Ok(graph)
    }

    /// [R13] Steps to dispatch, as of the last applied outcome.
    fn plan_next(&self, body: &[u8]) -> Result<v1::PlanNextStepsResponse, Stop> {
        let request: v1::PlanNextStepsRequest = wire::body(body)?;
        let projection = self.projection()?;
        let last = projection.last_outcome_sequence();
        if request.last_outcome_sequence > last {
            let message =
                format!("Expected fact {} next, but the caller knows of {}.", last + 1, request.last_outcome_sequence);
            return Err(Rejection::new(Code::Gap, message).at("lastOutcomeSequence").into());
        }
        let steps = self.plan().map(|plan| projection.plan_next(&plan)).unwrap_or_default();
        Ok(v1::PlanNextStepsResponse { steps, last_outcome_sequence: last })
    }

    fn list_approvals(&self, body: &[u8]) -> Result<v1::ListApprovalsResponse, Stop> {
        let request: v1::ListApprovalsRequest = wire::body(body)?;
        let size = match request.page_size as usize {
            0 => PAGE_MAX,
            size => size.min(PAGE_MAX),
        };
        let all = self.authority.approvals(&request.state);
        // The token is the last approval that was given; what was decided meanwhile has left the list, so its place is
        // found by order, not by presence.
        let start = match request.page_token.as_str() {
            "" => 0,
            token => {
                let last = token.split_once('/').and_then(|(at, id)| Some((at.parse::<i64>().ok()?, id)));
                let last = last.ok_or_else(wrong_token)?;
                all.partition_point(|a| (a.requested_at.map_or(0, |t| t.millis()), a.approval_id.as_str()) <= last)
            }
        };
        let page: Vec<v1::Approval> = all.iter().skip(start).take(size).map(|a| (*a).clone()).collect();
        let next_page_token = match page.last() {
            Some(last) if start + page.len() < all.len() => {
                format!("{}/{}", last.requested_at.map_or(0, |t| t.millis()), last.approval_id)
            }
            _ => String::new(),
        };
        Ok(v1::ListApprovalsResponse { approvals: page, next_page_token })
    }
}

fn wrong_token() -> Rejection {
    let message = "Expected the nextPageToken of a page of this run, or none, but found another text.";
    Rejection::new(Code::Invalid, message).at("pageToken")
}
