//! (in work) The log of all groups of a node: one file family, one committer thread.
