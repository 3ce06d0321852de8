//! (in work) The state store behind the Raft log: rebuildable, written behind.
