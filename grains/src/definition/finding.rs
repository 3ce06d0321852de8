//! What is wrong with a document, and where.

use granary_proto::v1;

/// A place in the text; lines and columns count from 1, 0 = no place (a stored document has none).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Spot {
    pub line: u32,
    pub column: u32,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Severity {
    Error,
    Warning,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Finding {
    /// Stable; the list is in `docs/dsl.md`.
    pub code: &'static str,
    pub severity: Severity,
    /// "Expected …, but …"
    pub message: String,
    /// `steps[2].compensation`; empty = the document.
    pub path: String,
    pub spot: Spot,
}

impl Finding {
    pub fn error(code: &'static str, spot: Spot, path: impl Into<String>, message: impl Into<String>) -> Self {
        Self { code, severity: Severity::Error, message: message.into(), path: path.into(), spot }
    }

    pub fn warning(code: &'static str, spot: Spot, path: impl Into<String>, message: impl Into<String>) -> Self {
        Self { severity: Severity::Warning, ..Self::error(code, spot, path, message) }
    }

    pub fn is_error(&self) -> bool {
        self.severity == Severity::Error
    }
}

impl Severity {
    pub fn as_str(self) -> &'static str {
        match self {
            Severity::Error => "error",
            Severity::Warning => "warning",
        }
    }
}

/// `3:5 error cycle (steps[1]): Expected …`
impl std::fmt::Display for Finding {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.spot.line > 0 {
            write!(f, "{}:{} ", self.spot.line, self.spot.column)?;
        }
        write!(f, "{} {}", self.severity.as_str(), self.code)?;
        if !self.path.is_empty() {
            write!(f, " ({})", self.path)?;
        }
        write!(f, ": {}", self.message)
    }
}

impl From<&Finding> for v1::Finding {
    fn from(finding: &Finding) -> Self {
        Self {
            code: finding.code.to_owned(),
            severity: finding.severity.as_str().to_owned(),
            message: finding.message.clone(),
            path: finding.path.clone(),
            line: finding.spot.line,
            column: finding.spot.column,
        }
    }
}
