//! Client of an external Run Control's journal: reads the facts that the engine missed.

use crate::api::facts::fact_of;
use crate::outside;
use crate::tenant::Caller;
use grain_contract::{Code, Rejection, limits};
use granary_proto::v1::run_control_journal_client::RunControlJournalClient;
use granary_proto::{calls, v1};
use tonic::transport::Channel;
use uuid::Uuid;

/// Facts fetched to fill one gap; a longer one is filled by several messages.
const FACTS_MAX: usize = 10_000;

#[derive(Clone)]
pub struct JournalClient {
    client: RunControlJournalClient<Channel>,
}

impl JournalClient {
    /// # Errors
    /// The endpoint is not a URL.
    pub fn connect(endpoint: &str) -> Result<Self, Rejection> {
        let client = RunControlJournalClient::new(outside::channel(endpoint)?)
            .max_decoding_message_size(limits::MESSAGE_BYTES_MAX)
            .max_encoding_message_size(limits::MESSAGE_BYTES_MAX);
        Ok(Self { client })
    }

    /// The facts numbered `after + 1` to `before - 1`, without a gap.
    pub async fn facts_between(
        &self,
        caller: &Caller,
        run_id: Uuid,
        after: u64,
        before: u64,
    ) -> Result<Vec<calls::ExternalFact>, Rejection> {
        let mut facts = Vec::new();
        let mut next = after + 1;
        for entry in self.read(caller, run_id, after, Some(before)).await? {
            if entry.sequence < next || entry.sequence >= before {
                continue;
            }
            if entry.sequence != next {
                break;
            }
            let Some(fact) = fact_of(run_id, entry) else { break };
            facts.push(fact);
            next += 1;
        }
        if next < before {
            return Err(Rejection::new(Code::Gap, format!("Expected fact {next}, but it does not have it.")));
        }
        Ok(facts)
    }

    /// All facts behind `after`, as journal entries.
    pub async fn facts_after(
        &self,
        caller: &Caller,
        run_id: Uuid,
        after: u64,
    ) -> Result<Vec<v1::JournalEntry>, Rejection> {
        self.read(caller, run_id, after, None).await
    }

    async fn read(
        &self,
        caller: &Caller,
        run_id: Uuid,
        mut after: u64,
        before: Option<u64>,
    ) -> Result<Vec<v1::JournalEntry>, Rejection> {
        let mut found: Vec<v1::JournalEntry> = Vec::new();
        let mut client = self.client.clone();
        loop {
            let mut request = tonic::Request::new(v1::ReadFactsRequest {
                tenant_id: caller.tenant.to_string(),
                run_id: run_id.to_string(),
                after,
                page_size: u32::try_from(limits::PAGE_MAX).unwrap_or(u32::MAX),
            });
            request.set_timeout(outside::patience(caller.deadline));
            let page =
                client.read_facts(request).await.map_err(|s| outside::refusal("RunControlJournal", &s))?.into_inner();
            let last = page.facts.iter().map(|f| f.sequence).max().unwrap_or(0);
            found.extend(page.facts);
            // A page that does not move on would be asked for again and again.
            if last <= after || before.is_some_and(|before| last + 1 >= before) {
                return Ok(found);
            }
            if found.len() >= FACTS_MAX {
                let message = format!("Expected at most {FACTS_MAX} missing facts, but there are more.");
                return Err(Rejection::new(Code::TooLarge, message));
            }
            after = last;
        }
    }
}
