//! Nothing of one tenant reaches another.

use super::Check;
use crate::sim::court::Sight;
use grain_contract::GrainId;

pub struct Tenants;

impl Check for Tenants {
    fn name(&self) -> &'static str {
        "tenants apart"
    }

    fn see(&mut self, sight: &Sight) -> Vec<String> {
        match sight {
            Sight::Applied { entry, .. } => {
                let Some((grain, _)) = GrainId::from_storage_bytes(&entry.grain) else { return Vec::new() };
                let targets = entry.outbox.iter().filter_map(|call| GrainId::from_storage_bytes(&call.call_target));
                let strangers = targets.filter(|(target, _)| target.tenant != grain.tenant);
                strangers.map(|(target, _)| format!("{grain} calls {target}")).collect()
            }
            Sight::Delivered { consumer, tenant, grain, .. } if grain.tenant != *tenant => {
                vec![format!("{consumer} of {tenant} was told an event of {grain}")]
            }
            Sight::Assigned { worker, tenant, assignment, .. } if assignment.tenant_id != tenant.as_str() => {
                vec![format!("{worker} of {tenant} was given work of {}", assignment.tenant_id)]
            }
            _ => Vec::new(),
        }
    }
}
