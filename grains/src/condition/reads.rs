//! The guard's part on `var`, `missing` and `missing_some`: which paths a rule reads, and in whose scope.

use super::guard::{Checked, CompileError, Guard, Place, Scope};
use super::path;
use super::template::Read;
use serde_json::{Value, json};

impl Guard {
    pub(super) fn var(&mut self, arguments: &[&Value], at: &str, place: Place) -> Checked {
        let default = match arguments.get(1) {
            None => None,
            Some(Value::Array(_) | Value::Object(_)) => {
                return Err(CompileError::new(
                    at,
                    "Expected a plain value as the default of `var`, but found a list or an object".into(),
                ));
            }
            Some(default) => Some(self.literal(default, at, place.depth)?),
        };
        let key = match arguments.first() {
            None | Some(Value::Null) => String::new(),
            Some(Value::String(key)) => key.clone(),
            Some(Value::Number(number)) if number.is_i64() || number.is_u64() => number.to_string(),
            Some(rule @ Value::Object(_)) if self.keep_reads => {
                let key =
                    self.rule(rule, &format!("{at}[0]"), Place { depth: place.depth + 1, numeric: false, ..place })?;
                return Ok(json!({"var": [key]}));
            }
            Some(Value::Object(_)) => {
                return Err(CompileError::new(
                    at,
                    "Expected a constant path, but found a computed one; what an expression reads must be known beforehand".into(),
                ));
            }
            Some(other) => {
                return Err(CompileError::new(at, format!("Expected a path, but found {other}")));
            }
        };
        let read = self.read(&key, at, place)?;
        match default {
            // The whole of the data has no default.
            Some(default) if !key.is_empty() => {
                self.grow(at, 6)?;
                Ok(json!({"if": [{"!==": [read, null]}, read, default]}))
            }
            _ => Ok(read),
        }
    }

    /// `{"var": key}` in its final form.
    fn read(&mut self, key: &str, at: &str, place: Place) -> Checked {
        if key.is_empty() {
            if place.scope == Scope::View && !self.keep_reads {
                return Err(CompileError::new(
                    at,
                    "Expected a path that begins with `input`, `vars` or a step, but found an empty one".into(),
                ));
            }
            if place.scope != Scope::View && place.numeric {
                self.item_reads.push(Vec::new());
            }
            return Ok(json!({"var": ""}));
        }
        let parts = path::split(key).map_err(|message| CompileError::new(at, message))?;
        match place.scope {
            Scope::View if !self.keep_reads => {
                let slot = match self.reads.iter().position(|read| read.parts == parts) {
                    Some(slot) => slot,
                    None => {
                        self.reads.push(Read { parts, numeric: false });
                        self.reads.len() - 1
                    }
                };
                self.reads[slot].numeric |= place.numeric;
                return Ok(json!({"var": slot.to_string()}));
            }
            Scope::View => {}
            Scope::Item => {
                if place.numeric {
                    self.item_reads.push(parts);
                }
            }
            Scope::Reduce => {
                if parts[0] == "accumulator" {
                    self.accumulators += 1;
                }
                if place.numeric && parts[0] == "current" {
                    self.item_reads.push(parts[1..].to_vec());
                }
            }
        }
        Ok(json!({"var": key}))
    }

    /// Each key as a `var`, or `None` if the keys are computed.
    fn keys<'a>(
        &mut self,
        keys: &[&'a Value],
        at: &str,
        place: Place,
    ) -> Result<Option<Vec<(&'a Value, Value)>>, CompileError> {
        let mut reads = Vec::new();
        for (ix, key) in keys.iter().enumerate() {
            let at = format!("{at}[{ix}]");
            self.count(&at, place.depth)?;
            let name = match key {
                Value::String(name) if !name.is_empty() => name.clone(),
                Value::Number(number) if number.is_i64() => number.to_string(),
                Value::Object(_) if self.keep_reads => return Ok(None),
                other => return Err(CompileError::new(&at, format!("Expected a constant path, but found {other}"))),
            };
            let read = self.read(&name, &at, Place { numeric: false, ..place })?;
            self.grow(&at, 12)?;
            reads.push((*key, read));
        }
        Ok(Some(reads))
    }

    pub(super) fn missing(&mut self, arguments: &[&Value], at: &str, inside: Place) -> Checked {
        // As the reference: a list as first argument is the list of keys.
        let keys: Vec<&Value> = match arguments.first() {
            Some(Value::Array(keys)) => keys.iter().collect(),
            _ => arguments.to_vec(),
        };
        let Some(keys) = self.keys(&keys, at, inside)? else {
            let rule = self.rule(arguments[0], at, inside)?;
            return Ok(json!({"missing": rule}));
        };
        Ok(missing_of(&keys))
    }

    pub(super) fn missing_some(&mut self, arguments: &[&Value], at: &str, inside: Place) -> Checked {
        let (Value::Number(needed), Value::Array(keys)) = (arguments[0], arguments[1]) else {
            return Err(CompileError::new(at, "Expected a number and a list of paths for `missing_some`".into()));
        };
        let keys: Vec<&Value> = keys.iter().collect();
        let Some(keys) = self.keys(&keys, at, inside)? else {
            return Err(CompileError::new(at, "Expected constant paths, but found computed ones".into()));
        };
        let present: Vec<Value> = keys.iter().map(|(_, read)| json!({"if": [is_present(read), 1, 0]})).collect();
        Ok(json!({"if": [{">=": [{"+": present}, needed]}, [], missing_of(&keys)]}))
    }
}

fn is_present(read: &Value) -> Value {
    json!({"and": [{"!==": [read, null]}, {"!==": [read, ""]}]})
}

fn missing_of(keys: &[(&Value, Value)]) -> Value {
    let each: Vec<Value> = keys.iter().map(|(key, read)| json!({"if": [is_present(read), [], [key]]})).collect();
    json!({ "merge": each })
}
