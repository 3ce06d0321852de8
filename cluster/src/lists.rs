//! One list over all shards: each gives its entries in order, here they are merged.

use crate::hop::index::Page;
use crate::hub::Hub;
use grain_contract::{Code, GrainId, IndexEntry, Rejection, TenantId, limits};
use std::sync::Arc;
use tokio::time::Instant;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IndexPage {
    /// In the order of the index: `sort`, then grain.
    pub entries: Vec<IndexEntry>,
    /// Empty if this was the last page.
    pub next_page_token: String,
}

/// A page of one tenant's entries behind `page_token` (empty = from the start). The token names the last entry seen, so
/// entries that come or go meanwhile shift nothing.
pub(crate) async fn index_page(
    hub: &Arc<Hub>,
    index: &str,
    tenant: &TenantId,
    page_token: &str,
    limit: usize,
    deadline: Instant,
) -> Result<IndexPage, Rejection> {
    let limit = limit.clamp(1, limits::PAGE_MAX);
    let after = if page_token.is_empty() { None } else { Some(from_token(page_token, tenant)?) };
    // One more than asked for tells whether there is a next page.
    let page = Page { index: index.to_owned(), tenant: tenant.clone(), after, limit: limit + 1 };
    let mut entries = hub.index(page, deadline).await?;
    entries.sort_by(|a, b| (&a.sort, &a.grain.key, &a.grain.kind).cmp(&(&b.sort, &b.grain.key, &b.grain.kind)));
    let is_last = entries.len() <= limit;
    entries.truncate(limit);
    let next_page_token = match entries.last() {
        Some(last) if !is_last => to_token(last),
        _ => String::new(),
    };
    Ok(IndexPage { entries, next_page_token })
}

fn to_token(entry: &IndexEntry) -> String {
    format!("{}.{}", hex(&entry.sort), hex(&entry.grain.storage_bytes()))
}

fn from_token(token: &str, tenant: &TenantId) -> Result<IndexEntry, Rejection> {
    let read = || {
        let (sort, grain) = token.split_once('.')?;
        let (grain, _) = GrainId::from_storage_bytes(&unhex(grain)?)?;
        Some(IndexEntry { grain, sort: unhex(sort)?, value: Vec::new() })
    };
    // A token of another tenant is as unknown as any other text.
    read().filter(|entry| entry.grain.tenant == *tenant).ok_or_else(|| {
        Rejection::new(Code::Invalid, "Expected a page token of an earlier answer, but found other text.")
            .at("pageToken")
    })
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn unhex(text: &str) -> Option<Vec<u8>> {
    let digits = text.as_bytes();
    let digit = |at: usize| char::from(*digits.get(at)?).to_digit(16);
    if !digits.len().is_multiple_of(2) || digits.len() > 4 * limits::ROW_KEY_BYTES_MAX {
        return None;
    }
    (0..digits.len()).step_by(2).map(|at| u8::try_from(digit(at)? * 16 + digit(at + 1)?).ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_reads_back_for_its_tenant_only() {
        let grain = GrainId::new(&"acme".into(), &"run".into(), "k");
        let entry = IndexEntry { grain, sort: vec![0, 255, 7], value: Vec::new() };
        let token = to_token(&entry);
        assert_eq!(from_token(&token, &"acme".into()), Ok(entry));
        assert_eq!(from_token(&token, &"other".into()).map_err(|r| r.code), Err(Code::Invalid));
    }

    #[test]
    fn other_text_is_refused() {
        for text in [".", "zz.00", "0.0", "é.00", "00", "00.6b006b006b"] {
            assert_eq!(from_token(text, &"acme".into()).map_err(|r| r.code), Err(Code::Invalid), "{text}");
        }
    }
}
