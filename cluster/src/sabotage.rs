//! Deliberate bugs: a simulator that does not find them is worth nothing. Not part of this crate's face; nobody else says so.

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sabotage {
    /// A named cursor stands behind what was read, acknowledged or not.
    CursorAhead,
    /// A reminder's row is cleared by a commit of its own, and then its turn is made.
    ReminderClearedFirst,
    /// A repeated command is carried out again.
    CommandRepeated,
    /// What a grain answers from memory leaves without a look at whether it is still owned here.
    ReadUnconfirmed,
    /// An assignment that was claimed long ago is handed out by its owner all the same.
    LateHandedOut,
}
