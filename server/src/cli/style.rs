//! Colours, on a terminal only.

use std::io::IsTerminal;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Style {
    colours: bool,
}

impl Style {
    /// For standard output. `NO_COLOR` is respected.
    pub fn of_stdout() -> Self {
        let refused = std::env::var_os("NO_COLOR").is_some_and(|v| !v.is_empty());
        Self { colours: std::io::stdout().is_terminal() && !refused }
    }

    pub fn plain() -> Self {
        Self { colours: false }
    }

    pub fn colours(self) -> bool {
        self.colours
    }

    /// A state in the colour of its meaning.
    pub fn state(self, state: &str, shown: &str) -> String {
        match state {
            "Succeeded" | "Completed" | "approved" => self.paint("32", shown),
            "Failed" | "rejected" | "error" => self.paint("31", shown),
            "WaitingForHuman" | "WaitingForApproval" | "pending" | "warning" => self.paint("33", shown),
            "Compensating" | "Cancelled" | "Cancelling" => self.paint("35", shown),
            "Skipped" | "Pending" | "Ready" => self.dim(shown),
            "Running" | "WaitingForTimer" => self.paint("36", shown),
            _ => shown.to_owned(),
        }
    }

    pub fn dim(self, text: &str) -> String {
        self.paint("2", text)
    }

    pub fn bold(self, text: &str) -> String {
        self.paint("1", text)
    }

    fn paint(self, code: &str, text: &str) -> String {
        if self.colours { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
    }
}
