//! Names of things. Each is its own type, so that none can be taken for another.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::sync::Arc;

macro_rules! name {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        pub struct $name(Arc<str>);

        impl $name {
            pub fn new(text: impl AsRef<str>) -> Self {
                Self(Arc::from(text.as_ref()))
            }
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{:?}", &*self.0)
            }
        }
        impl From<&str> for $name {
            fn from(text: &str) -> Self {
                Self::new(text)
            }
        }
    };
}

name!(
    /// Whose data it is. Part of every key; comes from the caller's token, never from a body.
    TenantId
);
name!(
    /// Which behaviour a grain has, e.g. `run` or `release`.
    GrainKind
);
name!(
    /// Where work of one kind waits for a worker, e.g. `tool:knowledge-search`.
    QueueName
);
name!(
    /// A caller's idempotency key; a repeated one finds the stored reply.
    CommandId
);

/// Address of a grain: tenant, kind, key.
///
/// Grains of one tenant with the same key share a shard whatever their kind (see [`GrainId::partition_bytes`]).
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct GrainId {
    pub tenant: TenantId,
    pub kind: GrainKind,
    pub key: Arc<str>,
}

impl GrainId {
    pub fn new(tenant: &TenantId, kind: &GrainKind, key: &str) -> Self {
        Self { tenant: tenant.clone(), kind: kind.clone(), key: Arc::from(key) }
    }

    /// The explicit bytes that placement hashes: tenant, a zero byte, key. Names hold no zero byte (checked at the edge).
    pub fn partition_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.tenant.as_str().len() + 1 + self.key.len());
        bytes.extend_from_slice(self.tenant.as_str().as_bytes());
        bytes.push(0);
        bytes.extend_from_slice(self.key.as_bytes());
        bytes
    }

    /// The bytes under which the grain's rows are kept: kind, tenant and key, each ended by a zero byte. Prefix-free, and
    /// ordered by kind, tenant, key.
    pub fn storage_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.kind.as_str().len() + self.tenant.as_str().len() + self.key.len() + 3);
        for part in [self.kind.as_str(), self.tenant.as_str(), &self.key] {
            bytes.extend_from_slice(part.as_bytes());
            bytes.push(0);
        }
        bytes
    }

    /// Reads [`GrainId::storage_bytes`] back and says how many bytes it took; `None` if they are not such bytes.
    pub fn from_storage_bytes(bytes: &[u8]) -> Option<(Self, usize)> {
        let mut at = 0;
        let mut part = || {
            let rest = bytes.get(at..)?;
            let end = rest.iter().position(|b| *b == 0)?;
            let text = std::str::from_utf8(&rest[..end]).ok()?;
            at += end + 1;
            Some(text)
        };
        let (kind, tenant, key) = (part()?, part()?, part()?);
        let id = Self { tenant: TenantId::new(tenant), kind: GrainKind::new(kind), key: Arc::from(key) };
        Some((id, at))
    }
}

impl fmt::Display for GrainId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{}", self.tenant, self.kind, self.key)
    }
}

/// Milliseconds since the Unix epoch, UTC. Handed in by the caller: nothing pure reads a clock.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize, Deserialize)]
pub struct Timestamp(pub i64);

impl Timestamp {
    pub fn plus_ms(self, ms: u64) -> Self {
        Self(self.0.saturating_add(i64::try_from(ms).unwrap_or(i64::MAX)))
    }
    /// Milliseconds from `earlier` to `self`; zero if `earlier` is later.
    pub fn since(self, earlier: Self) -> u64 {
        u64::try_from(self.0.saturating_sub(earlier.0)).unwrap_or(0)
    }
}

/// One leadership of one shard; greater means later. Fences a former owner.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize, Deserialize)]
pub struct Epoch(pub u64);

/// A grain's commit counter. Fences a lost update.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize, Deserialize)]
pub struct Revision(pub u64);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn storage_bytes_read_back() {
        let id = GrainId::new(&"acme".into(), &"run".into(), "0190-1");
        let mut bytes = id.storage_bytes();
        let len = bytes.len();
        bytes.extend_from_slice(b"rest");
        assert_eq!(GrainId::from_storage_bytes(&bytes), Some((id, len)));
        assert_eq!(GrainId::from_storage_bytes(b"run\0acme\0no-end"), None);
    }

    #[test]
    fn same_key_of_another_kind_shares_the_partition() {
        let a = GrainId::new(&"acme".into(), &"run".into(), "k");
        let b = GrainId::new(&"acme".into(), &"run-control".into(), "k");
        assert_eq!(a.partition_bytes(), b.partition_bytes());
        assert_ne!(a.storage_bytes(), b.storage_bytes());
    }
}
