//! The command line. One file a command; all of them but `validate` speak gRPC to a server, `run` also to one of its own.

mod approvals;
mod board;
mod client;
mod cluster;
mod definitions;
mod dev;
mod document;
mod draw;
mod events;
mod exit;
mod follow;
mod human;
mod node;
mod out;
mod run;
mod runs;
mod serve;
mod servers;
mod signals;
mod skills;
mod style;
mod table;
mod validate;
mod worker;

use clap::{Parser, Subcommand, ValueEnum};
pub use exit::{Exit, Failure};
pub use out::{complain, fault};

/// Where a server is looked for if none is named.
pub const DEFAULT_SERVER: &str = "http://127.0.0.1:7420";

const EXIT_CODES: &str = "Exit codes: 0 done, the run completed; 1 the run failed, or the answer is no; 2 wrong usage or bad input; 3 the \
                          server cannot be reached; 4 the run was cancelled; 5 the run has not ended (it waits, or nobody watches any \
                          more); 6 the cluster does not take this silo.";

#[derive(Parser, Debug)]
#[command(name = "granary", version, about = "Durable workflow runs on silos of grains", after_help = EXIT_CODES)]
pub struct Cli {
    #[command(flatten)]
    pub common: Common,
    #[command(subcommand)]
    pub command: Command,
}

#[derive(clap::Args, Clone, Debug)]
pub struct Common {
    /// Address of a silo, e.g. http://127.0.0.1:7420; several with commas, or given more than once
    ///
    /// Any silo of a cluster takes any call. With several, a call that one cannot answer goes to the next.
    #[arg(long, global = true, env = "GRANARY_SERVER", value_name = "URL", value_delimiter = ',')]
    pub server: Vec<String>,
    /// Whose runs; each tenant sees only its own. By default `default`.
    ///
    /// A worker takes its file's tenant if none is named here.
    #[arg(long, global = true, env = "GRANARY_TENANT")]
    tenant: Option<String>,
    /// Who does it, for the journal; by default the user of this machine.
    #[arg(long, global = true, env = "GRANARY_USER", value_name = "NAME")]
    user: Option<String>,
    /// Tables for people, JSON for programs.
    #[arg(long, global = true, env = "GRANARY_FORMAT", value_enum, default_value_t = Format::Table)]
    pub format: Format,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Format {
    Table,
    Json,
}

#[derive(Subcommand, Debug)]
pub enum Command {
    Run(run::RunArgs),
    Dev(dev::DevArgs),
    Node(node::NodeArgs),
    /// The cluster: try one out, look at it, change it
    #[command(subcommand)]
    Cluster(cluster::ClusterCommand),
    Validate(validate::ValidateArgs),
    /// Workflow definitions: load, list
    #[command(subcommand)]
    Definitions(definitions::DefinitionsCommand),
    /// Skills for SkillInvocation steps: load, list, show
    #[command(subcommand)]
    Skills(skills::SkillsCommand),
    /// Runs: start, list, show, watch, cancel, observe, journal
    #[command(subcommand)]
    Runs(runs::RunsCommand),
    /// Human decisions: list, approve, reject, answer
    #[command(subcommand)]
    Approvals(approvals::ApprovalsCommand),
    /// Events: tail
    #[command(subcommand)]
    Events(events::EventsCommand),
    Worker(worker::WorkerArgs),
}

impl Command {
    /// What is logged when nobody says: a command in the foreground keeps silent unless something is wrong.
    pub fn default_log(&self) -> &'static str {
        match self {
            Command::Dev(args) if args.quiet => "warn",
            Command::Dev(_) | Command::Node(_) | Command::Worker(_) => "info",
            Command::Run(_) => "error",
            _ => "warn",
        }
    }
}

/// Does the command. A failure was not printed yet.
pub async fn run(cli: Cli) -> Result<Exit, Failure> {
    let common = cli.common;
    match cli.command {
        Command::Run(args) => run::run(&common, args).await,
        Command::Dev(args) => dev::run(&common, args).await,
        Command::Node(args) => node::run(args).await,
        Command::Cluster(command) => cluster::run(&common, command).await,
        Command::Validate(args) => validate::run(&common, &args),
        Command::Definitions(command) => definitions::run(&common, command).await,
        Command::Skills(command) => skills::run(&common, command).await,
        Command::Runs(command) => runs::run(&common, command).await,
        Command::Approvals(command) => approvals::run(&common, command).await,
        Command::Events(command) => events::run(&common, command).await,
        Command::Worker(args) => worker::run(&common, args).await,
    }
}

impl Common {
    /// Where to ask, in order; at least one.
    pub fn servers(&self) -> Vec<String> {
        if self.server.is_empty() { vec![DEFAULT_SERVER.to_owned()] } else { self.server.clone() }
    }

    pub fn tenant(&self) -> &str {
        self.tenant.as_deref().unwrap_or(granary::tenant::DEFAULT_TENANT)
    }

    pub fn user(&self) -> String {
        let of_machine = || ["USER", "LOGNAME"].into_iter().find_map(|name| std::env::var(name).ok());
        let known = self.user.clone().filter(|user| !user.is_empty()).or_else(of_machine);
        known.filter(|user| !user.is_empty()).unwrap_or_else(|| "operator".to_owned())
    }

    pub fn is_json(&self) -> bool {
        self.format == Format::Json
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_well_formed() {
        Cli::command().debug_assert();
    }

    #[test]
    fn every_command_shows_an_example() {
        fn walk(command: &clap::Command, path: &str, without: &mut Vec<String>) {
            let path = format!("{path} {}", command.get_name());
            if command.get_subcommands().next().is_none() {
                let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
                if !help.contains("granary") {
                    without.push(path.clone());
                }
            }
            command.get_subcommands().filter(|c| c.get_name() != "help").for_each(|c| walk(c, &path, without));
        }
        let mut without = Vec::new();
        walk(&Cli::command(), "", &mut without);
        assert_eq!(without, Vec::<String>::new());
    }

    #[test]
    fn common_arguments_may_stand_behind_the_command() {
        let cli = Cli::try_parse_from(["granary", "runs", "list", "--server", "http://h:1", "--format", "json"])
            .expect("parses");
        assert_eq!((cli.common.servers(), cli.common.is_json()), (vec!["http://h:1".to_owned()], true));
    }

    #[test]
    fn several_servers_are_given_with_commas_or_one_by_one() {
        for line in [
            &["granary", "runs", "list", "--server", "http://a:1,http://b:2"][..],
            &["granary", "runs", "list", "--server", "http://a:1", "--server", "http://b:2"],
        ] {
            let cli = Cli::try_parse_from(line).expect("parses");
            assert_eq!(cli.common.servers(), ["http://a:1", "http://b:2"]);
        }
        let cli = Cli::try_parse_from(["granary", "runs", "list"]).expect("parses");
        assert_eq!(cli.common.servers(), [DEFAULT_SERVER]);
    }
}
