//! Query parameters: each is asked for by name, and one that nobody asked for is refused.

use super::{Edge, Problem};
use axum::extract::{FromRequestParts, Query};
use grain_contract::Rejection;
use http::request::Parts;
use std::str::FromStr;

/// Parameters in one request.
const PARAMETERS_MAX: usize = 64;

pub struct Params {
    pairs: Vec<(String, String)>,
    asked: Vec<&'static str>,
}

impl FromRequestParts<Edge> for Params {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, edge: &Edge) -> Result<Self, Problem> {
        let Query(pairs) = Query::<Vec<(String, String)>>::from_request_parts(parts, edge)
            .await
            .map_err(|e| Problem::invalid(format!("Expected a readable query, but: {e}.")))?;
        if pairs.len() > PARAMETERS_MAX {
            let message = format!("Expected at most {PARAMETERS_MAX} query parameters, but found {}.", pairs.len());
            return Err(Problem::invalid(message));
        }
        Ok(Self { pairs, asked: Vec::new() })
    }
}

/// A refusal of a field that has another name in the query.
pub fn called(mut refusal: Rejection, field: &str, parameter: &str) -> Rejection {
    if refusal.field == field {
        refusal.field = parameter.into();
    }
    refusal
}

impl Params {
    /// Every value of a parameter that may be repeated or hold several, separated by commas.
    pub fn many(&mut self, name: &'static str) -> Vec<String> {
        self.asked.push(name);
        let of = self.pairs.iter().filter(|(n, _)| n == name);
        of.flat_map(|(_, v)| v.split(',')).filter(|v| !v.is_empty()).map(str::to_owned).collect()
    }

    /// # Errors
    /// Given more than once.
    pub fn text(&mut self, name: &'static str) -> Result<String, Problem> {
        self.asked.push(name);
        let mut of = self.pairs.iter().filter(|(n, _)| n == name);
        let first = of.next().map(|(_, v)| v.clone()).unwrap_or_default();
        match of.next() {
            None => Ok(first),
            Some(_) => Err(Problem::invalid(format!("Expected {name} once, but found it twice.")).at(name)),
        }
    }

    /// # Errors
    /// Not of this type; `wanted` says what is.
    pub fn parsed<T: FromStr>(&mut self, name: &'static str, wanted: &str) -> Result<Option<T>, Problem> {
        let text = self.text(name)?;
        if text.is_empty() {
            return Ok(None);
        }
        let shown = crate::api::check::shown(&text);
        match text.parse() {
            Ok(value) => Ok(Some(value)),
            Err(_) => Err(Problem::invalid(format!("Expected {wanted}, but found {shown}.")).at(name)),
        }
    }

    /// # Errors
    /// A parameter that was not asked for.
    pub fn end(self) -> Result<(), Problem> {
        match self.pairs.iter().find(|(name, _)| !self.asked.contains(&name.as_str())) {
            None => Ok(()),
            Some((name, _)) => {
                let shown: String = name.chars().take(64).collect();
                let known = if self.asked.is_empty() { "no query parameters".into() } else { self.asked.join(", ") };
                Err(Problem::invalid(format!("Expected {known}, but found {shown:?}.")).at(&shown))
            }
        }
    }
}
