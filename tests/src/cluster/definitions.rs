//! What the load runs: a line, a fan-out and a nap, all of one Tool that gives its input back.

/// The queue that the workers serve.
pub const QUEUE: &str = "tool:echo";

/// How long the Timer step of the load's naps waits; no nap is shorter.
pub const NAP_SECONDS: u32 = 2;

/// A kind of run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    Line,
    Fan,
    /// With a Timer of so many seconds.
    Nap(u32),
}

/// The kinds of the load.
pub const KINDS: [Kind; 3] = [Kind::Line, Kind::Fan, Kind::Nap(NAP_SECONDS)];

impl Kind {
    pub fn definition_id(self) -> String {
        match self {
            Kind::Line => "chaos-line".to_owned(),
            Kind::Fan => "chaos-fan".to_owned(),
            Kind::Nap(seconds) => format!("chaos-nap-{seconds}"),
        }
    }

    /// Tool steps, and how often each succeeds in one run.
    pub fn steps(self) -> &'static [(&'static str, u32)] {
        match self {
            Kind::Line => &[("a", 1), ("b", 1), ("c", 1), ("d", 1)],
            Kind::Fan => &[("head", 1), ("leaf", 4), ("tail", 1)],
            Kind::Nap(_) => &[("before", 1), ("after", 1)],
        }
    }

    /// How long its Timer waits; `None`: it has none.
    pub fn nap_ms(self) -> Option<u64> {
        match self {
            Kind::Nap(seconds) => Some(u64::from(seconds) * 1_000),
            Kind::Line | Kind::Fan => None,
        }
    }

    pub fn document(self) -> String {
        let (steps, edges) = match self {
            Kind::Line => (
                [tool("a"), tool("b"), tool("c"), tool("d")].concat(),
                "[{ from: a, to: b }, { from: b, to: c }, { from: c, to: d }]",
            ),
            Kind::Fan => (
                [
                    tool("head"),
                    "  - { id: each, kind: Fanout, items: { var: input.items } }\n".to_owned(),
                    tool("leaf"),
                    "  - { id: all, kind: Join, quorum: all }\n".to_owned(),
                    tool("tail"),
                ]
                .concat(),
                "[{ from: head, to: each }, { from: each, to: leaf }, { from: leaf, to: all }, { from: all, to: tail }]",
            ),
            Kind::Nap(seconds) => (
                [tool("before"), format!("  - {{ id: nap, kind: Timer, delay: {seconds}s }}\n"), tool("after")]
                    .concat(),
                "[{ from: before, to: nap }, { from: nap, to: after }]",
            ),
        };
        format!(
            "workflow: {}\nversion: 1.0.0\ninput: builtin:any\noutput: builtin:any\nsteps:\n{steps}edges: {edges}\n",
            self.definition_id()
        )
    }

    pub fn input(self) -> &'static str {
        match self {
            Kind::Fan => r#"{"items":[1,2,3,4]}"#,
            Kind::Line | Kind::Nap(_) => r#"{"word":"granary"}"#,
        }
    }
}

/// Class `read`, so that an attempt whose end nobody knows is made again; the journal says if it was.
fn tool(id: &str) -> String {
    format!("  - {{ id: {id}, kind: Tool, tool: echo, actionClass: read, failurePolicy: Fail }}\n")
}
