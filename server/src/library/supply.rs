//! What run grains ask for: the plan of a release, or the newest release of a definition.

use super::Library;
use cluster::Supplier;
use futures::future::BoxFuture;
use grain_contract::{Code, GrainId, Need, Rejection, Supply};
use grains::kinds::methods::{NEED_PLAN, NEED_RELEASE_OF};
use std::any::Any;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// One try; the silo repeats it within its caller's deadline.
const TRY_MAX: Duration = Duration::from_secs(10);

/// The library as the silo sees it.
pub struct Supplies(pub Arc<Library>);

impl Supplier for Supplies {
    fn supply<'a>(&'a self, grain: &'a GrainId, need: &'a Need) -> BoxFuture<'a, Result<Supply, Rejection>> {
        Box::pin(async move {
            let deadline = Instant::now() + TRY_MAX;
            let release_id = match need.kind {
                NEED_PLAN => Ok(need.key.clone()),
                NEED_RELEASE_OF => self.release_of(grain, &need.key, deadline).await,
                other => {
                    Err(Rejection::new(Code::Internal, format!("Expected a need that is known, but found {other:?}.")))
                }
            };
            let found = match release_id {
                Ok(release_id) => self.0.release(&grain.tenant, &release_id, deadline).await,
                Err(refusal) => Err(refusal),
            };
            match found {
                Ok(compiled) => {
                    let plan: Arc<dyn Any + Send + Sync> = Arc::clone(&compiled.plan) as _;
                    Ok(Ok(plan))
                }
                Err(refusal) if refusal.code.is_retryable() => Err(refusal),
                Err(refusal) => Ok(Err(refusal)),
            }
        })
    }
}

impl Supplies {
    /// `definition` or `definition@version`.
    async fn release_of(&self, grain: &GrainId, key: &str, deadline: Instant) -> Result<String, Rejection> {
        let (definition_id, version) = match key.split_once('@') {
            Some((id, version)) => (id, Some(version)),
            None => (key, None),
        };
        let version = version.filter(|v| !v.is_empty());
        Ok(self.0.version_of(&grain.tenant, definition_id, version, deadline).await?.release_id)
    }
}
