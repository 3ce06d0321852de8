//! Kind `release`: one immutable definition. What was put once stays; the same again is the same answer, another content is
//! a conflict (D5). The event that tells of it is committed with it, so it is told exactly once.

use super::methods::release::{GET, KIND, PUT, table};
use super::wire;
use grain_contract::{
    Code, Context, Corrupt, Decision, Effect, Grain, GrainId, GrainKind, GrainType, Message, Method, Need,
    OutboxMessage, Rejection, Row, Supply, Turn,
};
use granary_proto::{calls, storage, v1};
use prost::Message as _;

pub struct ReleaseType;

impl GrainType for ReleaseType {
    fn kind(&self) -> GrainKind {
        GrainKind::new(KIND)
    }

    /// The same put again is known by its hash.
    fn is_idempotent(&self, _: Method) -> bool {
        true
    }

    fn load(&self, id: &GrainId, rows: Vec<Row>) -> Result<Box<dyn Grain>, Corrupt> {
        let mut put = None;
        for row in rows.iter().filter(|r| r.key.table == table::RELEASE) {
            let read: storage::ReleaseRow = wire::value(row)?;
            if read.format > FORMAT {
                return Err(Corrupt { what: format!("a release of format {}, known is {FORMAT}", read.format) });
            }
            let release = calls::PutRelease::decode(read.put.as_slice())
                .map_err(|e| Corrupt { what: format!("a release's body: {e}") })?;
            put = Some(release);
        }
        Ok(Box::new(Release { id: id.clone(), put }))
    }
}

const FORMAT: u32 = 1;

struct Release {
    id: GrainId,
    put: Option<calls::PutRelease>,
}

impl Grain for Release {
    fn handle(&mut self, cx: &mut Context<'_>, message: &Message<'_>) -> Decision {
        let decided = match message {
            Message::Call { method, body } if *method == PUT => self.put(cx, body),
            Message::Call { method, .. } if *method == GET => self.get(),
            Message::Call { method, .. } => Err(Rejection::new(
                Code::Invalid,
                format!("Expected a call of kind {KIND}, but {} is none of its numbers.", method.0),
            )),
            // A release sets no reminders and has no open work.
            Message::Reminder { .. } | Message::Wake => Ok(Decision::Read(Vec::new())),
        };
        decided.unwrap_or_else(Decision::Reject)
    }

    fn supply(&mut self, _: &Need, _: Supply) {}

    fn memory(&self) -> usize {
        512 + self.put.as_ref().map_or(0, |p| p.document.len() + p.schemas.values().map(String::len).sum::<usize>())
    }
}

impl Release {
    fn get(&self) -> Result<Decision, Rejection> {
        let put = self.put.as_ref().ok_or_else(|| {
            Rejection::new(Code::NotFound, format!("Expected a loaded release, but {} is not one.", self.id.key))
        })?;
        Ok(Decision::Read(put.encode_to_vec()))
    }

    fn put(&mut self, cx: &Context<'_>, body: &[u8]) -> Result<Decision, Rejection> {
        let mut put: calls::PutRelease = wire::body(body)?;
        if put.release_id != *self.id.key {
            let message = format!("Expected release {}, but the body is of {}.", self.id.key, put.release_id);
            return Err(Rejection::new(Code::Invalid, message).at("releaseId"));
        }
        let mut outbox = Vec::new();
        match &self.put {
            Some(known) => {
                agree(known, &put)?;
                // A draft's schemas lie outside of its hash and may follow the author's edits.
                if !known.draft || known.schemas == put.schemas {
                    let reply = calls::PutReleaseReply { repeated: true, summary: known.summary.clone() };
                    return Ok(Decision::Read(reply.encode_to_vec()));
                }
                if let (Some(first), Some(summary)) = (&known.summary, &mut put.summary) {
                    summary.loaded_at = first.loaded_at;
                }
            }
            None => outbox.push(OutboxMessage::Event { body: loaded(&self.id, &put, cx.now.0).encode_to_vec() }),
        }
        let reply = calls::PutReleaseReply { repeated: self.put.is_some(), summary: put.summary.clone() };
        let row = storage::ReleaseRow { format: FORMAT, put: put.encode_to_vec() };
        self.put = Some(put);
        Ok(Decision::Commit(Turn {
            puts: vec![wire::row(table::RELEASE, Vec::new(), &row)],
            outbox,
            effects: vec![Effect::Changed],
            reply: reply.encode_to_vec(),
            ..Turn::default()
        }))
    }
}

/// The same release, or a conflict that names both.
fn agree(known: &calls::PutRelease, put: &calls::PutRelease) -> Result<(), Rejection> {
    let conflict = |what: &str, wanted: &str, found: &str| {
        let message =
            format!("Expected release {} with {what} {wanted}, as it was loaded, but found {found}.", known.release_id);
        Err(Rejection::new(Code::Conflict, message).at("releaseId"))
    };
    if known.graph_hash != put.graph_hash {
        return conflict("graphHash", &known.graph_hash, &put.graph_hash);
    }
    if known.definition_id != put.definition_id {
        return conflict("definitionId", &known.definition_id, &put.definition_id);
    }
    if known.version != put.version {
        return conflict("version", &known.version, &put.version);
    }
    if !known.draft && known.schemas != put.schemas {
        return conflict("schemas", "of the first load", "others");
    }
    Ok(())
}

fn loaded(id: &GrainId, put: &calls::PutRelease, at_ms: i64) -> v1::EventBatch {
    let payload = v1::WorkflowDefinitionLoaded {
        release_id: put.release_id.clone(),
        tenant_id: id.tenant.to_string(),
        definition_id: put.definition_id.clone(),
        version: put.version.clone(),
        graph_hash: put.graph_hash.clone(),
    };
    let event = v1::Event {
        sequence: 1,
        at_ms,
        subject: put.release_id.clone(),
        payload: Some(v1::event::Payload::DefinitionLoaded(payload)),
    };
    v1::EventBatch { events: vec![event] }
}
