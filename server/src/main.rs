//! The granary binary.

mod cli;

use clap::Parser;
use cli::{Cli, Exit, Failure};
use granary::telemetry;
use std::process::ExitCode;
use std::time::Duration;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// How long tasks that are left may hold up the end of the process.
const LINGER: Duration = Duration::from_millis(500);

fn main() -> ExitCode {
    // The same exit code for wrong usage as for bad input; help and version are no mistakes.
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            // If it cannot be printed there is nobody to print it to.
            let _ = error.print();
            return if error.use_stderr() { Exit::Usage.into() } else { ExitCode::SUCCESS };
        }
    };
    // The allocator asks for huge pages, and then every small piece that one page holds keeps 2 MiB resident: 75 MB at
    // start and 100 MB under load, for no speed that could be measured. A kernel that refuses changes nothing else.
    let _ = rustix::thread::disable_transparent_huge_pages(true);
    init_log(cli.command.default_log());
    // One provider for the whole process; a second call would mean that this is not the process's beginning.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let json = cli.common.is_json();
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return fail(&Failure::no("internal", format!("no runtime: {error}")), json),
    };
    let outcome = runtime.block_on(cli::run(cli));
    runtime.shutdown_timeout(LINGER);
    match outcome {
        Ok(exit) => match cli::fault() {
            None => exit.into(),
            Some(why) => {
                fail(&Failure::no("output", format!("Expected to write to standard output, but: {why}.")), json)
            }
        },
        Err(failure) => fail(&failure, json),
    }
}

fn fail(failure: &Failure, json: bool) -> ExitCode {
    if json {
        cli::complain(&failure.as_json());
    } else {
        cli::complain(&format!("granary: {}", failure.message));
    }
    failure.exit.into()
}

/// `GRANARY_LOG`, else `RUST_LOG`, else what fits the command (a configuration file may still say otherwise). Logs go to standard error; standard output is for answers.
fn init_log(default: &str) {
    let wanted = ["GRANARY_LOG", "RUST_LOG"]
        .iter()
        .find_map(|name| std::env::var(name).ok().filter(|filter| !filter.is_empty()));
    if let Err(why) = telemetry::init(wanted.as_deref(), default, telemetry::Form::Text) {
        cli::complain(&format!("granary: {why}"));
        // The default is a filter; only the environment's word was not.
        let _ = telemetry::init(None, default, telemetry::Form::Text);
    }
}
