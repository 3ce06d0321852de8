//! Where a reader stands: for each shard the number of the next outbox row to look at. As text: `1.` and the numbers, with
//! dots between. Numbers are given when the log is applied, so whoever has seen n has seen all below n, and a position skips
//! nothing that is committed later.

use grain_contract::{Code, Rejection};
use std::fmt;

#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Position(pub(crate) Vec<u64>);

const VERSION: &str = "1";
/// Longest text that is read: 1,024 shards of 20 digits.
const TEXT_BYTES_MAX: usize = 24 * 1_024;

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(VERSION)?;
        self.0.iter().try_for_each(|next| write!(f, ".{next}"))
    }
}

impl Position {
    /// # Errors
    /// `Invalid`, saying what a cursor of these shards looks like.
    pub(crate) fn read(text: &str, shards: usize) -> Result<Self, Rejection> {
        let read = || {
            if text.len() > TEXT_BYTES_MAX {
                return None;
            }
            let mut parts = text.split('.');
            let versioned = parts.next() == Some(VERSION);
            let numbers: Vec<u64> = parts.map(|part| part.parse().ok()).collect::<Option<_>>()?;
            (versioned && numbers.len() == shards).then_some(Position(numbers))
        };
        read().ok_or_else(|| {
            Rejection::new(
                Code::Invalid,
                format!("Expected the cursor of a delivered event of these {shards} shards, but found other text."),
            )
            .at("cursor")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_position_reads_back() {
        let position = Position(vec![0, 7, u64::MAX]);
        assert_eq!(position.to_string(), "1.0.7.18446744073709551615");
        assert_eq!(Position::read(&position.to_string(), 3), Ok(position));
    }

    #[test]
    fn other_text_is_refused() {
        for text in ["", "1", "1.2", "2.1.2", "1.1.x", "1.1.-2", "1.1.2.3", "1.1.18446744073709551616"] {
            assert_eq!(Position::read(text, 2).map_err(|r| r.code), Err(Code::Invalid), "{text}");
        }
    }
}
