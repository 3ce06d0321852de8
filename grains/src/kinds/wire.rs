//! Reading and writing the messages of calls and rows.

use grain_contract::{Code, Corrupt, Rejection, Row, RowKey, Table};
use prost::Message;
use uuid::Uuid;

/// A call's body; what does not decode is the caller's fault.
pub(crate) fn body<M: Message + Default>(body: &[u8]) -> Result<M, Rejection> {
    M::decode(body).map_err(|e| {
        Rejection::new(Code::Invalid, format!("Expected a message of this call, but it does not decode: {e}."))
    })
}

/// A row's value; what does not decode sets the grain aside.
pub(crate) fn value<M: Message + Default>(row: &Row) -> Result<M, Corrupt> {
    M::decode(row.value.as_slice()).map_err(|e| Corrupt { what: format!("a row of table {}: {e}", row.key.table.0) })
}

pub(crate) fn row(table: Table, key: impl Into<Vec<u8>>, message: &impl Message) -> Row {
    Row { key: RowKey { table, key: key.into() }, value: message.encode_to_vec() }
}

/// An id in a request.
pub(crate) fn id(text: &str, field: &str) -> Result<Uuid, Rejection> {
    Uuid::try_parse(text).map_err(|_| {
        let shown: String = text.chars().take(64).collect();
        Rejection::new(Code::Invalid, format!("Expected a UUID, but found {shown:?}.")).at(field)
    })
}
