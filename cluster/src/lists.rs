//! One list over all shards.

use grain_contract::IndexEntry;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IndexPage {
    /// In the order of the index: `sort`, then grain.
    pub entries: Vec<IndexEntry>,
    /// Empty if this was the last page.
    pub next_page_token: String,
}
