//! A value as it lies in a store: its CRC32C, then its bytes. What a store gives back wrong is noticed at the read, not
//! three turns later.

use crate::Error;

const CRC_BYTES: usize = 4;

pub fn seal(value: &[u8]) -> Vec<u8> {
    let mut sealed = Vec::with_capacity(CRC_BYTES + value.len());
    sealed.extend_from_slice(&crc32c::crc32c(value).to_le_bytes());
    sealed.extend_from_slice(value);
    sealed
}

/// # Errors
/// [`Error::Damaged`] if the bytes are not what was sealed.
pub fn open<'a>(store: &str, key: &[u8], sealed: &'a [u8]) -> Result<&'a [u8], Error> {
    match sealed.split_first_chunk::<CRC_BYTES>() {
        Some((crc, value)) if u32::from_le_bytes(*crc) == crc32c::crc32c(value) => Ok(value),
        _ => Err(damaged(store, key, "checksum of a state row does not match")),
    }
}

pub fn damaged(store: &str, key: &[u8], what: &str) -> Error {
    Error::Damaged { file: store.to_string(), offset: 0, what: format!("{what} (key {})", key.escape_ascii()) }
}
