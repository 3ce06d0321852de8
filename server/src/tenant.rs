//! Who calls: the tenant, a name for the journal, and until when the caller waits.
//!
//! In development mode the tenant comes from the header (or metadata) `x-granary-tenant`, without proof; otherwise there is
//! one tenant, `default`, and a header that names another is refused. It never comes from a body.

use grain_contract::{Code, Rejection, TenantId, limits};
use http::HeaderMap;
use std::time::Duration;
use tokio::time::Instant;

pub const TENANT_HEADER: &str = "x-granary-tenant";
pub const USER_HEADER: &str = "x-granary-user";
pub const DEFAULT_TENANT: &str = "default";
const GRPC_TIMEOUT_HEADER: &str = "grpc-timeout";
/// A longer wish is cut to this.
const DEADLINE_MAX: Duration = Duration::from_secs(300);

#[derive(Clone, Debug)]
pub struct Caller {
    pub tenant: TenantId,
    /// For the journal: who did it. `anonymous` until callers prove who they are.
    pub by: String,
    pub deadline: Instant,
}

impl Caller {
    /// # Errors
    /// A tenant name that is none, or one that may not be chosen outside of development mode.
    pub fn of(headers: &HeaderMap, development: bool, default_deadline: Duration) -> Result<Self, Rejection> {
        let tenant = match headers.get(TENANT_HEADER) {
            None => TenantId::new(DEFAULT_TENANT),
            Some(value) => tenant_of(value.as_bytes(), development)?,
        };
        let by = headers.get(USER_HEADER).and_then(|v| user_of(v.as_bytes()));
        let by = by.unwrap_or_else(|| "anonymous".to_owned());
        let patience = headers
            .get(GRPC_TIMEOUT_HEADER)
            .and_then(|v| v.to_str().ok())
            .and_then(grpc_timeout)
            .unwrap_or(default_deadline)
            .min(DEADLINE_MAX);
        Ok(Self { tenant, by, deadline: Instant::now() + patience })
    }

    /// The same caller with a new deadline: streams make many calls.
    pub fn again(&self, patience: Duration) -> Self {
        Self { deadline: Instant::now() + patience, ..self.clone() }
    }
}

/// A name of any script, in UTF-8; one that is too long is cut.
fn user_of(bytes: &[u8]) -> Option<String> {
    let text = std::str::from_utf8(bytes).ok()?;
    let cut = text.floor_char_boundary(limits::NAME_BYTES_MAX);
    Some(text[..cut].to_owned()).filter(|name| !name.is_empty() && !name.chars().any(char::is_control))
}

fn tenant_of(bytes: &[u8], development: bool) -> Result<TenantId, Rejection> {
    let shown = || String::from_utf8_lossy(bytes).chars().take(limits::NAME_BYTES_MAX).collect::<String>();
    let fine = (1..=limits::NAME_BYTES_MAX).contains(&bytes.len())
        // Names that begin with a dash are the cluster's own.
        && bytes.first() != Some(&b'-')
        && bytes.iter().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.'));
    if !fine {
        let message = format!(
            "Expected 1 to {} letters, digits, '-', '_' or '.' (no '-' at the start) as tenant, but found {:?}.",
            limits::NAME_BYTES_MAX,
            shown()
        );
        return Err(Rejection::new(Code::Invalid, message).at(TENANT_HEADER));
    }
    let text = shown();
    if !development && text != DEFAULT_TENANT {
        let message = format!(
            "Expected no other tenant than {DEFAULT_TENANT:?}, since a header proves nothing outside of development mode, \
             but found {text:?}."
        );
        return Err(Rejection::new(Code::Denied, message).at(TENANT_HEADER));
    }
    Ok(TenantId::new(text))
}

/// `10S`, `500m`, … as the gRPC specification writes it: at most 8 digits and a unit.
fn grpc_timeout(text: &str) -> Option<Duration> {
    let (digits, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    if digits.is_empty() || digits.len() > 8 {
        return None;
    }
    let n: u64 = digits.parse().ok()?;
    match unit {
        "H" => Some(Duration::from_secs(n * 3_600)),
        "M" => Some(Duration::from_secs(n * 60)),
        "S" => Some(Duration::from_secs(n)),
        "m" => Some(Duration::from_millis(n)),
        "u" => Some(Duration::from_micros(n)),
        "n" => Some(Duration::from_nanos(n)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;

    fn of(tenant: Option<&[u8]>, development: bool) -> Result<String, Code> {
        let mut headers = HeaderMap::new();
        if let Some(tenant) = tenant {
            headers.insert(TENANT_HEADER, HeaderValue::from_bytes(tenant).expect("header"));
        }
        Caller::of(&headers, development, Duration::from_secs(1)).map(|c| c.tenant.to_string()).map_err(|r| r.code)
    }

    /// [P2] (the part that needs no tokens)
    #[test]
    fn the_tenant_is_a_name_and_is_chosen_in_development_only() {
        assert_eq!(of(None, false), Ok("default".to_owned()));
        assert_eq!(of(Some(b"acme"), true), Ok("acme".to_owned()));
        assert_eq!(of(Some(b"acme"), false), Err(Code::Denied));
        assert_eq!(of(Some(b"default"), false), Ok("default".to_owned()));
        for bad in [&b""[..], b"-granary", b"a/b", b"a b", b"\xff", &[b'a'; 129]] {
            assert_eq!(of(Some(bad), true), Err(Code::Invalid), "{bad:?}");
        }
    }

    /// [P7]
    #[test]
    fn the_user_is_a_name_of_any_script() {
        let long = "ü".repeat(limits::NAME_BYTES_MAX);
        let cut = "ü".repeat(limits::NAME_BYTES_MAX / 2);
        let cases = [
            ("ada", "ada"),
            ("Ada Lovelace", "Ada Lovelace"),
            ("Zoë", "Zoë"),
            ("", "anonymous"),
            ("a\tb", "anonymous"),
            (long.as_str(), cut.as_str()),
        ];
        for (user, wanted) in cases {
            let mut headers = HeaderMap::new();
            headers.insert(USER_HEADER, HeaderValue::from_bytes(user.as_bytes()).expect("header"));
            let caller = Caller::of(&headers, true, Duration::from_secs(1)).expect("a caller");
            assert_eq!(caller.by, wanted, "{user:?}");
        }
        let mut headers = HeaderMap::new();
        headers.insert(USER_HEADER, HeaderValue::from_bytes(b"\xff").expect("header"));
        assert_eq!(Caller::of(&headers, true, Duration::from_secs(1)).expect("a caller").by, "anonymous");
    }

    #[test]
    fn grpc_timeouts_are_read_as_the_specification_writes_them() {
        let cases = [
            ("10S", Some(10_000)),
            ("250m", Some(250)),
            ("2M", Some(120_000)),
            ("", None),
            ("S", None),
            ("123456789S", None),
            ("1x", None),
            ("-1S", None),
        ];
        for (text, wanted) in cases {
            assert_eq!(grpc_timeout(text), wanted.map(Duration::from_millis), "{text:?}");
        }
    }
}
