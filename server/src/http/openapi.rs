//! The description of the HTTP API: made from the table of routes and the compiled .proto files.

use super::schema::Messages;
use super::{Route, Takes, routes};
use serde_json::{Map, Value, json};

pub fn document() -> Value {
    let messages = Messages::read();
    let routes = routes();
    let mut paths = Map::new();
    for route in &routes {
        let path = paths.entry(route.path.to_owned()).or_insert_with(|| json!({}));
        path[route.method] = operation(route, &messages);
    }
    let named = routes.iter().map(|r| r.gives.to_owned()).filter(|name| messages.has(name));
    let mut schemas = messages.schemas(named.chain(["Finding".to_owned()]));
    schemas.insert("Problem".to_owned(), problem());
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Granary",
            "version": env!("CARGO_PKG_VERSION"),
            "description": "Durable workflow runs. Errors are problem documents (RFC 9457) with a stable `code`.",
        },
        "paths": paths,
        "components": { "schemas": schemas },
    })
}

fn operation(route: &Route, messages: &Messages) -> Value {
    let mut operation = json!({
        "operationId": route.id,
        "tags": [route.tag],
        "summary": route.summary,
        "parameters": parameters(route),
        "responses": {
            route.success.to_string(): { "description": "Done.", "content": content(route, messages) },
            "default": {
                "description": "A problem.",
                "content": { "application/problem+json": { "schema": { "$ref": "#/components/schemas/Problem" } } },
            },
        },
    });
    if let Some(body) = body(route, messages) {
        operation["requestBody"] = json!({ "required": true, "content": body });
    }
    operation
}

fn parameters(route: &Route) -> Vec<Value> {
    let in_path = route.path.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'));
    let in_path =
        in_path.map(|name| json!({ "name": name, "in": "path", "required": true, "schema": { "type": "string" } }));
    let others = route.parameters.iter().map(|(name, what)| {
        let place = if name.starts_with(|c: char| c.is_ascii_uppercase()) { "header" } else { "query" };
        json!({ "name": name, "in": place, "description": what, "schema": { "type": "string" } })
    });
    let tenant = json!({
        "name": "x-granary-tenant", "in": "header", "schema": { "type": "string", "default": "default" },
        "description": "In development mode: whose data it is about.",
    });
    let mut all: Vec<Value> = in_path.chain(others).collect();
    if route.tag != "operation" {
        all.push(tenant);
    }
    all
}

fn content(route: &Route, messages: &Messages) -> Value {
    if messages.has(route.gives) {
        let schema = json!({ "$ref": format!("#/components/schemas/{}", route.gives) });
        return json!({ "application/json": { "schema": schema } });
    }
    let schema =
        if route.gives == "application/json" { json!({ "type": "object" }) } else { json!({ "type": "string" }) };
    json!({ route.gives: { "schema": schema } })
}

fn body(route: &Route, messages: &Messages) -> Option<Value> {
    match route.takes {
        Takes::Nothing => None,
        Takes::Fields(name, fields) => {
            Some(json!({ "application/json": { "schema": messages.request(name, fields) } }))
        }
        Takes::Document => {
            let text = json!({ "schema": { "type": "string" } });
            let with_schemas = json!({ "schema": {
                "type": "object",
                "required": ["document"],
                "additionalProperties": false,
                "properties": {
                    "document": { "type": "string" },
                    "schemas": { "type": "object", "additionalProperties": { "type": "string" } },
                },
            } });
            Some(json!({
                "application/yaml": text,
                "application/json": { "schema": { "type": "object" } },
                "application/vnd.granary.definition+json": with_schemas,
            }))
        }
    }
}

fn problem() -> Value {
    json!({
        "type": "object",
        "required": ["type", "title", "status", "code", "detail"],
        "properties": {
            "type": { "type": "string" },
            "title": { "type": "string" },
            "status": { "type": "integer" },
            "detail": { "type": "string", "description": "Expected …, but …" },
            "code": { "type": "string", "description": "Stable." },
            "field": { "type": "string", "description": "Path of the field, where there is one." },
            "line": { "type": "integer" },
            "column": { "type": "integer" },
            "retryAfterMs": { "type": "integer", "description": "The same request may succeed after this time." },
            "findings": { "type": "array", "items": { "$ref": "#/components/schemas/Finding" } },
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_route_is_described_and_every_reference_resolves() {
        let document = document();
        for route in routes() {
            let found = &document["paths"][route.path][route.method]["operationId"];
            assert_eq!(found, route.id, "{} {}", route.method, route.path);
        }
        let text = document.to_string();
        for part in text.split("#/components/schemas/").skip(1) {
            let name = part.split('"').next().unwrap_or_default();
            assert!(document["components"]["schemas"].get(name).is_some(), "{name} is not there");
        }
    }

    #[test]
    fn operation_ids_are_unique_and_answers_are_messages_or_media_types() {
        let messages = Messages::read();
        let mut seen = BTreeSet::new();
        for route in routes() {
            assert!(seen.insert(route.id), "{} twice", route.id);
            assert!(messages.has(route.gives) || route.gives.contains('/'), "{}", route.gives);
            if let Takes::Fields(name, fields) = route.takes {
                let schema = messages.request(name, fields);
                let count = schema["properties"].as_object().map_or(0, Map::len);
                assert!(count > 0 && (fields.is_empty() || count == fields.len()), "{name}");
            }
        }
    }
}
