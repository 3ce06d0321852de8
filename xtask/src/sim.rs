//! Seeds of the simulated cluster.

#[derive(clap::Args)]
pub struct Sim {
    /// How many.
    #[arg(long, default_value_t = 1_000)]
    seeds: u64,
    /// The first one.
    #[arg(long, default_value_t = 1)]
    from: u64,
    /// Processes at once; one for each processor if not given.
    #[arg(long)]
    at_once: Option<usize>,
    /// Trouble of this kind for all seeds, not what each of them draws: Everything, PowerCuts, Restless, Roaming or
    /// Sleepers.
    #[arg(long)]
    profile: Option<String>,
    /// With a deliberate bug, see docs/simulator.md.
    #[arg(long)]
    bug: Option<String>,
    /// Print everything that happens, to standard error.
    #[arg(long)]
    trace: bool,
}

impl Sim {
    pub fn run(self) -> anyhow::Result<()> {
        let mut command = crate::test("simulation", "seeds");
        command.env("GRANARY_SIM_SEEDS", self.seeds.to_string());
        command.env("GRANARY_SIM_FROM", self.from.to_string());
        if let Some(at_once) = self.at_once {
            command.env("GRANARY_SIM_AT_ONCE", at_once.to_string());
        }
        if let Some(profile) = self.profile {
            command.env("GRANARY_SIM_PROFILE", profile);
        }
        if let Some(bug) = self.bug {
            command.env("GRANARY_SIM_SABOTAGE", bug);
        }
        if self.trace {
            command.env("GRANARY_SIM_TRACE", "1");
        }
        crate::run(command)
    }
}
