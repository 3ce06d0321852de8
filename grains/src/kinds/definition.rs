//! Kind `definition`: the versions of one definition, in the order of loading. A published version has one content for ever
//! (FR-092); drafts may repeat, and only the newest of them are kept.

use super::methods::definition::{ADD_VERSION, KIND, LIST, table};
use super::methods::index::{DEFINITIONS, SKILLS};
use super::wire;
use crate::definition::SKILL_PREFIX;
use grain_contract::{
    Code, Context, Corrupt, Decision, Effect, Grain, GrainId, GrainKind, GrainType, IndexChange, Message, Method, Need,
    Rejection, Row, RowKey, Supply, Turn,
};
use granary_proto::{calls, storage, v1};
use prost::Message as _;

/// Published versions of one definition.
pub const PUBLISHED_MAX: usize = 10_000;
/// Drafts of one definition that are remembered; the oldest goes.
pub const DRAFTS_MAX: usize = 100;
const FORMAT: u32 = 1;

pub struct DefinitionType;

impl GrainType for DefinitionType {
    fn kind(&self) -> GrainKind {
        GrainKind::new(KIND)
    }

    /// The same version again is known by its release id.
    fn is_idempotent(&self, _: Method) -> bool {
        true
    }

    fn load(&self, id: &GrainId, rows: Vec<Row>) -> Result<Box<dyn Grain>, Corrupt> {
        let mut versions = Vec::new();
        for row in rows.iter().filter(|r| r.key.table == table::VERSIONS) {
            let place = <[u8; 4]>::try_from(row.key.key.as_slice())
                .map_err(|_| Corrupt { what: "a version's key that is not a place".into() })?;
            let read: storage::DefinitionVersionRow = wire::value(row)?;
            if read.format > FORMAT {
                return Err(Corrupt { what: format!("a version of format {}, known is {FORMAT}", read.format) });
            }
            let version = v1::DefinitionVersion::decode(read.version.as_slice())
                .map_err(|e| Corrupt { what: format!("a version's body: {e}") })?;
            versions.push((u32::from_be_bytes(place), version));
        }
        Ok(Box::new(Definition { id: id.clone(), versions }))
    }
}

struct Definition {
    id: GrainId,
    /// Oldest first, with their places.
    versions: Vec<(u32, v1::DefinitionVersion)>,
}

impl Grain for Definition {
    fn handle(&mut self, _: &mut Context<'_>, message: &Message<'_>) -> Decision {
        let decided = match message {
            Message::Call { method, body } if *method == ADD_VERSION => self.add(body),
            Message::Call { method, .. } if *method == LIST => self.list(),
            Message::Call { method, .. } => Err(Rejection::new(
                Code::Invalid,
                format!("Expected a call of kind {KIND}, but {} is none of its numbers.", method.0),
            )),
            // A definition sets no reminders and has no open work.
            Message::Reminder { .. } | Message::Wake => Ok(Decision::Read(Vec::new())),
        };
        decided.unwrap_or_else(Decision::Reject)
    }

    fn supply(&mut self, _: &Need, _: Supply) {}

    fn memory(&self) -> usize {
        256 + self.versions.len() * 512
    }
}

impl Definition {
    fn list(&self) -> Result<Decision, Rejection> {
        if self.versions.is_empty() {
            let key = self.id.key.as_ref();
            let (message, field) = match key.strip_prefix(SKILL_PREFIX) {
                Some(skill) => (format!("Expected a loaded skill, but {skill:?} is not one."), "name"),
                None => (format!("Expected a loaded definition, but {key} is not one."), "definitionId"),
            };
            return Err(Rejection::new(Code::NotFound, message).at(field));
        }
        let versions = self.versions.iter().rev().map(|(_, v)| v.clone()).collect();
        Ok(Decision::Read(v1::ListWorkflowDefinitionVersionsResponse { versions }.encode_to_vec()))
    }

    fn add(&mut self, body: &[u8]) -> Result<Decision, Rejection> {
        let call: calls::AddVersion = wire::body(body)?;
        let version = call.version.unwrap_or_default();
        if version.definition_id != *self.id.key {
            let message = format!("Expected definition {}, but the body is of {}.", self.id.key, version.definition_id);
            return Err(Rejection::new(Code::Invalid, message).at("version.definitionId"));
        }
        if let Some((_, known)) = self.versions.iter().find(|(_, v)| v.release_id == version.release_id) {
            return repeated(known, &version);
        }
        if !version.draft {
            self.check_published(&version)?;
        }
        let place = self.versions.last().map_or(0, |(place, _)| place.saturating_add(1));
        let mut turn = Turn { effects: vec![Effect::Changed], ..Turn::default() };
        let row = storage::DefinitionVersionRow { format: FORMAT, version: version.encode_to_vec() };
        turn.puts.push(wire::row(table::VERSIONS, place.to_be_bytes(), &row));
        if self.versions.is_empty() {
            let sort = self.id.key.as_bytes().to_vec();
            let index = if self.id.key.starts_with(SKILL_PREFIX) { SKILLS } else { DEFINITIONS };
            turn.index.push(IndexChange::Put { index, sort, value: Vec::new() });
        }
        if version.draft {
            turn.deletes.extend(self.forget_oldest_draft());
        }
        self.versions.push((place, version));
        Ok(Decision::Commit(turn))
    }

    /// A version that is published once has one content.
    fn check_published(&self, version: &v1::DefinitionVersion) -> Result<(), Rejection> {
        let mut published = 0;
        for (_, known) in self.versions.iter().filter(|(_, v)| !v.draft) {
            published += 1;
            if known.version == version.version && known.graph_hash != version.graph_hash {
                let message = format!(
                    "Expected a new version, but {}@{} was published as release {} with graphHash {}, and this is {}.",
                    known.definition_id, known.version, known.release_id, known.graph_hash, version.graph_hash
                );
                return Err(Rejection::new(Code::Conflict, message).at("version"));
            }
        }
        if published >= PUBLISHED_MAX {
            let message = format!("Expected at most {PUBLISHED_MAX} published versions, but this would be one more.");
            return Err(Rejection::new(Code::TooLarge, message));
        }
        Ok(())
    }

    fn forget_oldest_draft(&mut self) -> Option<RowKey> {
        if self.versions.iter().filter(|(_, v)| v.draft).count() < DRAFTS_MAX {
            return None;
        }
        let at = self.versions.iter().position(|(_, v)| v.draft)?;
        let (place, _) = self.versions.remove(at);
        Some(RowKey { table: table::VERSIONS, key: place.to_be_bytes().to_vec() })
    }
}

fn repeated(known: &v1::DefinitionVersion, version: &v1::DefinitionVersion) -> Result<Decision, Rejection> {
    if known.graph_hash == version.graph_hash {
        return Ok(Decision::Read(Vec::new()));
    }
    let message = format!(
        "Expected release {} with graphHash {}, as it was loaded, but found {}.",
        known.release_id, known.graph_hash, version.graph_hash
    );
    Err(Rejection::new(Code::Conflict, message).at("version.releaseId"))
}
