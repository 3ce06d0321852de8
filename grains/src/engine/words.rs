//! States and other words, as the documents and the rows spell them.

/// S1's WorkflowRunState.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunState {
    Pending,
    Running,
    WaitingForTimer,
    WaitingForHuman,
    Compensating,
    Completed,
    Failed,
    Cancelled,
}

impl RunState {
    pub const ALL: [Self; 8] = [
        Self::Pending,
        Self::Running,
        Self::WaitingForTimer,
        Self::WaitingForHuman,
        Self::Compensating,
        Self::Completed,
        Self::Failed,
        Self::Cancelled,
    ];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "Pending",
            Self::Running => "Running",
            Self::WaitingForTimer => "WaitingForTimer",
            Self::WaitingForHuman => "WaitingForHuman",
            Self::Compensating => "Compensating",
            Self::Completed => "Completed",
            Self::Failed => "Failed",
            Self::Cancelled => "Cancelled",
        }
    }

    pub fn is_terminal(self) -> bool {
        matches!(self, Self::Completed | Self::Failed | Self::Cancelled)
    }
}

/// S1's StepRunState.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StepState {
    Pending,
    Ready,
    Running,
    WaitingForTimer,
    WaitingForHuman,
    Succeeded,
    Failed,
    Skipped,
    Cancelled,
}

impl StepState {
    pub const ALL: [Self; 9] = [
        Self::Pending,
        Self::Ready,
        Self::Running,
        Self::WaitingForTimer,
        Self::WaitingForHuman,
        Self::Succeeded,
        Self::Failed,
        Self::Skipped,
        Self::Cancelled,
    ];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "Pending",
            Self::Ready => "Ready",
            Self::Running => "Running",
            Self::WaitingForTimer => "WaitingForTimer",
            Self::WaitingForHuman => "WaitingForHuman",
            Self::Succeeded => "Succeeded",
            Self::Failed => "Failed",
            Self::Skipped => "Skipped",
            Self::Cancelled => "Cancelled",
        }
    }

    pub fn is_terminal(self) -> bool {
        matches!(self, Self::Succeeded | Self::Failed | Self::Skipped | Self::Cancelled)
    }
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Purpose {
    /// A Timer step's own.
    Step,
    /// Of one attempt, or of a human's answer.
    Timeout,
    /// The next attempt.
    Retry,
    /// The next look at a condition.
    Look,
}

impl Purpose {
    pub const ALL: [Self; 4] = [Self::Step, Self::Timeout, Self::Retry, Self::Look];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Step => "step",
            Self::Timeout => "timeout",
            Self::Retry => "retry",
            Self::Look => "look",
        }
    }
}

/// What a step run asks a human.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Asked {
    Nothing,
    Approval,
    Input,
    Escalation,
}

impl Asked {
    pub const ALL: [Self; 4] = [Self::Nothing, Self::Approval, Self::Input, Self::Escalation];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Nothing => "",
            Self::Approval => "approval",
            Self::Input => "input",
            Self::Escalation => "escalation",
        }
    }

    pub fn options(self) -> &'static [&'static str] {
        match self {
            Self::Nothing => &[],
            Self::Approval => &["approved", "rejected"],
            Self::Input => &["answered", "rejected"],
            Self::Escalation => &["retry", "skip", "fail"],
        }
    }
}
