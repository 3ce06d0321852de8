//! From a document to a release of the cluster.

use super::{Library, compile};
use crate::api::{call, grain};
use grain_contract::{Code, Rejection, TenantId, limits};
use grains::definition::{Loaded as Judged, Mode, load};
use grains::kinds::methods::{definition, release};
use granary_proto::{calls, v1, wire};
use prost::Message as _;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::time::Instant;

/// Definitions looked through for a cycle of sub-workflows.
const DEFINITIONS_LOOKED_AT_MAX: usize = 256;
/// All calls of one load from the registry.
const LOAD_MAX: Duration = Duration::from_secs(20);
/// Hex digits of the hash in a draft's release id.
const DRAFT_HASH_DIGITS: usize = 12;

/// What came of a load.
#[derive(Clone, Debug, Default)]
pub struct Loaded {
    /// `None` if it was refused.
    pub version: Option<v1::DefinitionVersion>,
    /// It was there already.
    pub repeated: bool,
    pub findings: Vec<v1::Finding>,
}

/// A document on its way in.
pub struct Incoming {
    pub document: String,
    pub schemas: BTreeMap<String, String>,
    pub draft: bool,
    /// Empty = `definitionId@version`.
    pub release_id: String,
    /// The hash it was announced with; empty = none.
    pub graph_hash: String,
}

impl Library {
    /// Checks a document and keeps nothing.
    pub async fn validate(
        &self,
        tenant: &TenantId,
        request: &v1::ValidateWorkflowDefinitionRequest,
        deadline: Instant,
    ) -> Result<v1::ValidateWorkflowDefinitionResponse, Rejection> {
        check_size(&request.document)?;
        let mode = if request.publish { Mode::Publish } else { Mode::Draft };
        let schemas = request.schemas.clone().into_iter().collect();
        let judged = self.judge(tenant, &request.document, mode, schemas, deadline).await?;
        let valid = !judged.findings.iter().any(grains::definition::Finding::is_error);
        if !valid {
            self.figures.definition_rejected(tenant, "validation");
        }
        Ok(v1::ValidateWorkflowDefinitionResponse {
            valid,
            findings: compile::to_wire(&judged.findings),
            step_count: judged.step_count,
            definition_id: judged.definition_id,
            version: judged.version,
            graph_hash: judged.graph_hash,
        })
    }

    /// Checks a document and makes it a release. Idempotent on the release id.
    ///
    /// A document with errors is an answer (no version, the findings), not a rejection.
    pub async fn load(&self, tenant: &TenantId, incoming: Incoming, deadline: Instant) -> Result<Loaded, Rejection> {
        check_size(&incoming.document)?;
        if incoming.draft && !self.live.get().development {
            let message = "Expected a publication, since drafts are taken in development mode only, but found a draft.";
            return Err(Rejection::new(Code::Denied, message).at("draft"));
        }
        let mode = if incoming.draft { Mode::Draft } else { Mode::Publish };
        let judged = self.judge(tenant, &incoming.document, mode, incoming.schemas.clone(), deadline).await?;
        let mut findings = compile::to_wire(&judged.findings);
        let Some(plan) = &judged.plan else {
            self.figures.definition_rejected(tenant, "validation");
            return Ok(Loaded { findings, ..Loaded::default() });
        };
        if !incoming.graph_hash.is_empty() && incoming.graph_hash != judged.graph_hash {
            self.figures.definition_rejected(tenant, "hash");
            let message = format!(
                "Expected graphHash {}, as announced, but the document has {}.",
                incoming.graph_hash, judged.graph_hash
            );
            return Err(Rejection::new(Code::Conflict, message).at("graphHash"));
        }
        let release_id = release_id(&incoming, &judged);
        let denials = self.policy.check(tenant, &release_id, compile::action_classes(plan)).await?;
        if !denials.is_empty() {
            self.figures.definition_rejected(tenant, "policy");
            findings.extend(denials.into_iter().map(|d| denial(plan, d)));
            let refusal = Rejection::new(Code::Denied, format!("policy-denied: {}", compile::sentence(&findings)));
            self.plans.refuse(tenant, &release_id, refusal);
            return Ok(Loaded { findings, ..Loaded::default() });
        }
        let version = summary(tenant, &judged, plan, &incoming, &release_id);
        let kept = self.keep(tenant, judged.canonical, incoming.schemas, version, deadline).await;
        let (version, repeated) = kept.inspect_err(|refusal| {
            if refusal.code == Code::Conflict {
                self.figures.definition_rejected(tenant, "conflict");
            }
        })?;
        Ok(Loaded { version: Some(version), repeated, findings })
    }

    /// A release that the Agent Registry has: loaded once, however often it is told.
    pub async fn published(
        self: &Arc<Self>,
        tenant: &TenantId,
        announced: v1::AssetReleasePublishedMessage,
        deadline: Instant,
    ) -> Result<Loaded, Rejection> {
        if self.registry.is_none() {
            return self.already_here(tenant, &announced, deadline).await;
        }
        let key = (tenant.clone(), announced.release_id.clone());
        let (library, tenant) = (Arc::clone(self), tenant.clone());
        let once = move || {
            let (library, tenant, announced) = (Arc::clone(&library), tenant.clone(), announced.clone());
            async move { library.fetch(&tenant, &announced).await }
        };
        self.loading.join(key, deadline, once).await
    }

    async fn fetch(
        &self,
        tenant: &TenantId,
        announced: &v1::AssetReleasePublishedMessage,
    ) -> Result<Loaded, Rejection> {
        let Some(registry) = &self.registry else { return Err(super::unknown(&announced.release_id)) };
        let found = registry.load_release(tenant, &announced.release_id).await?;
        let graph_hash = [&announced.graph_hash, &found.graph_hash].into_iter().find(|h| !h.is_empty()).cloned();
        let incoming = Incoming {
            document: found.document,
            schemas: found.schemas.into_iter().collect(),
            draft: false,
            release_id: announced.release_id.clone(),
            graph_hash: graph_hash.unwrap_or_default(),
        };
        let loaded = self.load(tenant, incoming, Instant::now() + LOAD_MAX).await;
        if let Some(refusal) = final_refusal(&announced.release_id, &loaded) {
            self.plans.refuse(tenant, &announced.release_id, refusal.clone());
            // Told again when a run pins it; the announcement itself is answered with the findings.
            if loaded.is_err() {
                return Err(refusal);
            }
        }
        loaded
    }

    /// Without a registry a published release can only be one that was loaded here.
    async fn already_here(
        &self,
        tenant: &TenantId,
        announced: &v1::AssetReleasePublishedMessage,
        deadline: Instant,
    ) -> Result<Loaded, Rejection> {
        let target = grain(tenant, release::KIND, &announced.release_id);
        let put: calls::PutRelease = call(self.silo()?, target, release::GET, Vec::new(), deadline).await?;
        if !announced.graph_hash.is_empty() && announced.graph_hash != put.graph_hash {
            let message =
                format!("Expected graphHash {}, as announced, but found {}.", announced.graph_hash, put.graph_hash);
            return Err(Rejection::new(Code::Conflict, message).at("graphHash"));
        }
        Ok(Loaded { version: put.summary, repeated: true, findings: Vec::new() })
    }

    async fn judge(
        &self,
        tenant: &TenantId,
        document: &str,
        mode: Mode,
        schemas: BTreeMap<String, String>,
        deadline: Instant,
    ) -> Result<Judged, Rejection> {
        let config = self.live.get();
        let alone =
            judge_off_thread(document, mode, compile::environment(&config, schemas.clone(), HashMap::new())).await?;
        if alone.sub_workflows.is_empty() {
            return Ok(alone);
        }
        // Only a document that starts others can be part of a cycle across definitions: judged again with what those start.
        let known = self.starts(tenant, alone.sub_workflows, deadline).await?;
        judge_off_thread(document, mode, compile::environment(&config, schemas, known)).await
    }

    /// Which definitions these start, and those in turn, as far as they are known.
    async fn starts(
        &self,
        tenant: &TenantId,
        first: Vec<String>,
        deadline: Instant,
    ) -> Result<HashMap<String, Vec<String>>, Rejection> {
        let mut known: HashMap<String, Vec<String>> = HashMap::new();
        let mut open: VecDeque<String> = first.into();
        while let Some(id) = open.pop_front() {
            if known.contains_key(&id) || known.len() >= DEFINITIONS_LOOKED_AT_MAX {
                continue;
            }
            let compiled = match self.version_of(tenant, &id, None, deadline).await {
                Ok(version) => self.release_here(tenant, &version.release_id, deadline).await,
                Err(refusal) => Err(refusal),
            };
            let starts = match compiled {
                Ok(compiled) => compile::sub_workflows(&compiled.plan),
                Err(refusal) if refusal.code.is_retryable() => return Err(refusal),
                // Not known, or not to be had: it starts nothing that we know of.
                Err(_) => Vec::new(),
            };
            open.extend(starts.iter().cloned());
            known.insert(id, starts);
        }
        Ok(known)
    }

    /// Gives the version as it is kept, which is that of the first load, and whether this was not the first.
    pub(super) async fn keep(
        &self,
        tenant: &TenantId,
        canonical: Vec<u8>,
        schemas: BTreeMap<String, String>,
        version: v1::DefinitionVersion,
        deadline: Instant,
    ) -> Result<(v1::DefinitionVersion, bool), Rejection> {
        let put = calls::PutRelease {
            release_id: version.release_id.clone(),
            definition_id: version.definition_id.clone(),
            version: version.version.clone(),
            graph_hash: version.graph_hash.clone(),
            document: canonical,
            schemas: schemas.into_iter().collect(),
            draft: version.draft,
            summary: Some(version.clone()),
        };
        let target = grain(tenant, release::KIND, &version.release_id);
        let reply: calls::PutReleaseReply =
            call(self.silo()?, target, release::PUT, put.encode_to_vec(), deadline).await?;
        self.plans.forget(tenant, &version.release_id);
        // A load that stopped half-way is finished with the time at which it began.
        let version = reply.summary.unwrap_or(version);
        let add = calls::AddVersion { version: Some(version.clone()) };
        let target = grain(tenant, definition::KIND, &version.definition_id);
        call::<()>(self.silo()?, target, definition::ADD_VERSION, add.encode_to_vec(), deadline).await?;
        Ok((version, reply.repeated))
    }
}

/// A document of a megabyte takes a while to judge: not on a thread that serves calls.
async fn judge_off_thread(
    document: &str,
    mode: Mode,
    environment: grains::definition::Environment,
) -> Result<Judged, Rejection> {
    let document = document.to_owned();
    off_thread(move || load(&document, mode, &environment)).await
}

pub(super) async fn off_thread<T: Send + 'static>(judge: impl FnOnce() -> T + Send + 'static) -> Result<T, Rejection> {
    tokio::task::spawn_blocking(judge)
        .await
        .map_err(|e| Rejection::new(Code::Internal, format!("Expected the check to end, but: {e}.")))
}

pub(super) fn now() -> wire::Timestamp {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    wire::Timestamp::from_millis(i64::try_from(now.as_millis()).unwrap_or(i64::MAX))
}

pub(super) fn check_size(document: &str) -> Result<(), Rejection> {
    if document.len() > limits::DOCUMENT_BYTES_MAX {
        let message =
            format!("Expected at most {} bytes of document, but found {}.", limits::DOCUMENT_BYTES_MAX, document.len());
        return Err(Rejection::new(Code::TooLarge, message).at("document"));
    }
    Ok(())
}

fn release_id(incoming: &Incoming, judged: &Judged) -> String {
    if !incoming.release_id.is_empty() {
        return incoming.release_id.clone();
    }
    let published = format!("{}@{}", judged.definition_id, judged.version);
    if !incoming.draft {
        return published;
    }
    let digits: String = judged.graph_hash.chars().take(DRAFT_HASH_DIGITS).collect();
    format!("{published}-draft.{digits}")
}

fn summary(
    tenant: &TenantId,
    judged: &Judged,
    plan: &grains::definition::Plan,
    incoming: &Incoming,
    release_id: &str,
) -> v1::DefinitionVersion {
    v1::DefinitionVersion {
        definition_id: judged.definition_id.clone(),
        version: judged.version.clone(),
        release_id: release_id.to_owned(),
        tenant_id: tenant.to_string(),
        graph_hash: judged.graph_hash.clone(),
        step_count: judged.step_count,
        input_schema_ref: plan.input_schema_ref.clone(),
        output_schema_ref: plan.output_schema_ref.clone(),
        max_loop_iterations: plan.max_loop_iterations,
        loaded_at: Some(now()),
        draft: incoming.draft,
    }
}

fn denial(plan: &grains::definition::Plan, denial: v1::Denial) -> v1::Finding {
    let place = plan.by_id.get(&denial.step_id).map(|ix| format!("steps[{}].actionClass", ix.0)).unwrap_or_default();
    v1::Finding {
        code: "policy-denied".to_owned(),
        severity: "error".to_owned(),
        message: if denial.step_id.is_empty() {
            denial.reason
        } else {
            format!("step {:?}: {}", denial.step_id, denial.reason)
        },
        path: place,
        ..v1::Finding::default()
    }
}

/// Why a release is refused for good, if it is.
fn final_refusal(release_id: &str, loaded: &Result<Loaded, Rejection>) -> Option<Rejection> {
    match loaded {
        Err(refusal) if refusal.code.is_retryable() => None,
        Err(refusal) => Some(refusal.clone()),
        Ok(Loaded { version: Some(_), .. }) => None,
        Ok(Loaded { version: None, findings, .. }) => {
            let denied = findings.iter().any(|f| f.code == "policy-denied");
            let code = if denied { Code::Denied } else { Code::Invalid };
            let why = compile::sentence(findings);
            Some(Rejection::new(
                code,
                format!("Expected release {release_id:?} to be loaded, but it was refused: {why}"),
            ))
        }
    }
}
