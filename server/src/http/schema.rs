//! JSON Schemas of the API's messages, read from the compiled .proto files: the JSON form follows from them by rule.

use prost::Message as _;
use prost_types::field_descriptor_proto::{Label, Type};
use prost_types::{DescriptorProto, FieldDescriptorProto, FileDescriptorSet};
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet};

const PACKAGE: &str = ".granary.v1.";

/// The messages of `granary.v1` by name.
pub struct Messages(BTreeMap<String, DescriptorProto>);

impl Messages {
    /// Empty if the descriptor set does not decode; a test holds that it does.
    pub fn read() -> Self {
        let set = FileDescriptorSet::decode(granary_proto::DESCRIPTORS).unwrap_or_default();
        let files = set.file.into_iter().filter(|file| file.package() == "granary.v1");
        let messages = files.flat_map(|file| file.message_type).map(|message| (message.name().to_owned(), message));
        Self(messages.collect())
    }

    pub fn has(&self, name: &str) -> bool {
        self.0.contains_key(name)
    }

    /// Schemas of these messages and of all that they hold.
    pub fn schemas(&self, wanted: impl IntoIterator<Item = String>) -> Map<String, Value> {
        let mut open: Vec<String> = wanted.into_iter().collect();
        let mut seen = BTreeSet::new();
        let mut schemas = Map::new();
        while let Some(name) = open.pop() {
            let Some(message) = self.0.get(&name) else { continue };
            if !seen.insert(name.clone()) {
                continue;
            }
            schemas.insert(name, self.object(message, &[]));
            let inner = message.field.iter().filter(|f| own_form(f.type_name()).is_none());
            open.extend(inner.filter_map(|f| f.type_name().strip_prefix(PACKAGE)).map(str::to_owned));
        }
        schemas
    }

    /// The schema of a request body: only these fields (all if none is named), and no others.
    pub fn request(&self, name: &str, fields: &[&str]) -> Value {
        let Some(message) = self.0.get(name) else { return json!({}) };
        let mut schema = self.object(message, fields);
        schema["additionalProperties"] = json!(false);
        schema
    }

    fn object(&self, message: &DescriptorProto, only: &[&str]) -> Value {
        let wanted = message.field.iter().map(|f| (camel(f.name()), f));
        let properties: Map<String, Value> = wanted
            .filter(|(name, _)| only.is_empty() || only.contains(&name.as_str()))
            .map(|(name, field)| (name, self.property(message, field)))
            .collect();
        json!({ "type": "object", "properties": properties })
    }

    fn property(&self, of: &DescriptorProto, field: &FieldDescriptorProto) -> Value {
        if field.label() != Label::Repeated {
            return if field.r#type() == Type::Message { nullable(value(field)) } else { value(field) };
        }
        let entry = of.nested_type.iter().find(|nested| field.type_name().ends_with(&format!(".{}", nested.name())));
        match entry.and_then(|entry| entry.field.iter().find(|f| f.name() == "value")) {
            Some(values) => json!({ "type": "object", "additionalProperties": value(values) }),
            None => json!({ "type": "array", "items": value(field) }),
        }
    }
}

fn value(field: &FieldDescriptorProto) -> Value {
    match field.r#type() {
        Type::Message => match own_form(field.type_name()) {
            Some(schema) => schema,
            None => {
                let name = field.type_name().strip_prefix(PACKAGE).unwrap_or_default();
                json!({ "$ref": format!("#/components/schemas/{name}") })
            }
        },
        Type::Bool => json!({ "type": "boolean" }),
        Type::String => json!({ "type": "string" }),
        Type::Float | Type::Double => json!({ "type": "number" }),
        Type::Bytes => json!({ "type": "array", "items": { "type": "integer", "minimum": 0, "maximum": 255 } }),
        Type::Uint32 | Type::Uint64 | Type::Fixed32 | Type::Fixed64 => json!({ "type": "integer", "minimum": 0 }),
        _ => json!({ "type": "integer" }),
    }
}

/// Messages with a JSON form of their own.
fn own_form(type_name: &str) -> Option<Value> {
    match type_name {
        ".google.protobuf.Timestamp" => Some(json!({ "type": "string", "format": "date-time" })),
        ".granary.v1.Json" => Some(json!({ "description": "Any JSON value." })),
        _ => None,
    }
}

fn nullable(schema: Value) -> Value {
    json!({ "anyOf": [schema, { "type": "null" }] })
}

fn camel(name: &str) -> String {
    let mut out = String::with_capacity(name.len());
    let mut up = false;
    for c in name.chars() {
        match c {
            '_' => up = true,
            c if up => {
                out.push(c.to_ascii_uppercase());
                up = false;
            }
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use granary_proto::v1;

    /// The schema is right if the messages' own JSON has exactly its properties.
    #[test]
    fn schemas_have_the_fields_that_serde_writes() {
        let messages = Messages::read();
        let written = [
            ("Run", serde_json::to_value(v1::Run::default())),
            ("RunGraph", serde_json::to_value(v1::RunGraph::default())),
            ("Approval", serde_json::to_value(v1::Approval::default())),
            ("JournalEntry", serde_json::to_value(v1::JournalEntry::default())),
            ("Finding", serde_json::to_value(v1::Finding::default())),
            ("DefinitionVersion", serde_json::to_value(v1::DefinitionVersion::default())),
        ];
        for (name, value) in written {
            let value = value.expect("json");
            let schemas = messages.schemas([name.to_owned()]);
            let keys = |v: &Value| v.as_object().expect("object").keys().cloned().collect::<BTreeSet<_>>();
            assert_eq!(keys(&schemas[name]["properties"]), keys(&value), "{name}");
        }
    }

    #[test]
    fn what_a_message_holds_is_there_too() {
        let schemas = Messages::read().schemas(["ListRunsResponse".to_owned()]);
        let names: Vec<&str> = schemas.keys().map(String::as_str).collect();
        assert_eq!(names, ["Failure", "ListRunsResponse", "Run", "StepWaiting", "Waiting"]);
    }
}
