//! Two messages with a JSON form of their own: a moment is RFC 3339 text, a JSON value is itself.

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// `google.protobuf.Timestamp`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, prost::Message)]
pub struct Timestamp {
    #[prost(int64, tag = "1")]
    pub seconds: i64,
    #[prost(int32, tag = "2")]
    pub nanos: i32,
}

impl Timestamp {
    pub fn from_millis(ms: i64) -> Self {
        Self { seconds: ms.div_euclid(1_000), nanos: (ms.rem_euclid(1_000) * 1_000_000) as i32 }
    }

    pub fn millis(&self) -> i64 {
        self.seconds.saturating_mul(1_000).saturating_add(i64::from(self.nanos) / 1_000_000)
    }

    /// `None` for 0, which rows use for "none".
    pub fn from_row(ms: i64) -> Option<Self> {
        (ms != 0).then(|| Self::from_millis(ms))
    }

    fn to_jiff(self) -> jiff::Timestamp {
        jiff::Timestamp::from_millisecond(self.millis()).unwrap_or(jiff::Timestamp::MAX)
    }
}

impl std::fmt::Display for Timestamp {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:.3}", self.to_jiff())
    }
}

impl std::str::FromStr for Timestamp {
    type Err = jiff::Error;
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Ok(Self::from_millis(text.parse::<jiff::Timestamp>()?.as_millisecond()))
    }
}

impl Serialize for Timestamp {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Timestamp {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        let text = String::deserialize(d)?;
        text.parse().map_err(|e| D::Error::custom(format!("expected an RFC 3339 moment, but found {text:?}: {e}")))
    }
}

/// `granary.v1.Json`: one JSON value as UTF-8 text, byte for byte.
#[derive(Clone, PartialEq, Eq, Hash, prost::Message)]
pub struct Json {
    #[prost(bytes = "vec", tag = "1")]
    pub text: Vec<u8>,
}

impl Json {
    pub fn new(text: impl Into<Vec<u8>>) -> Self {
        Self { text: text.into() }
    }
    pub fn of<T: Serialize>(value: &T) -> Self {
        Self { text: serde_json::to_vec(value).unwrap_or_else(|_| b"null".to_vec()) }
    }
    pub fn value(&self) -> serde_json::Result<serde_json::Value> {
        serde_json::from_slice(&self.text)
    }
}

impl Serialize for Json {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        match serde_json::from_slice::<&serde_json::value::RawValue>(&self.text) {
            Ok(raw) => raw.serialize(s),
            Err(_) => s.serialize_unit(),
        }
    }
}

impl<'de> Deserialize<'de> for Json {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        let raw = Box::<serde_json::value::RawValue>::deserialize(d)?;
        Ok(Self { text: raw.get().as_bytes().to_vec() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moment_is_rfc_3339() {
        let t = Timestamp::from_millis(1_790_000_000_123);
        assert_eq!(t.to_string().parse::<Timestamp>().expect("reads back"), t);
        assert!(t.to_string().ends_with(".123Z"), "{t}");
        assert_eq!(Timestamp::from_millis(-1).millis(), -1);
    }

    #[test]
    fn json_stays_byte_for_byte() {
        let text = r#"{"b":1.0,"a":[9007199254740993]}"#;
        let json: Json = serde_json::from_str(text).expect("json");
        assert_eq!(serde_json::to_string(&json).expect("json"), text);
    }
}
