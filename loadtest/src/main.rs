//! Load on a Granary server, and the proof afterwards.
//!
//! Three processes, so that their costs stay apart: the server (or a cluster of several), a worker that echoes (this program again, with the hidden
//! subcommand `worker`), and this client. Latency counts from the moment a run was *meant* to start; a client that falls
//! behind therefore shows up in the figures instead of hiding in them.

mod args;
mod cluster;
mod drive;
mod events;
mod faults;
mod ledger;
mod load;
mod processes;
mod proof;
mod report;
mod server_link;
mod target;
mod usage;
mod waiting;
mod worker;
mod workload;

use args::{Args, Command, Format};
use clap::Parser;
use std::process::ExitCode;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let args = Args::parse();
    let outcome = match &args.command {
        Some(Command::Worker(worker)) => {
            single_threaded().and_then(|rt| rt.block_on(worker::run(worker))).map(|()| true)
        }
        None if args.waiting.is_some() => many_threaded()
            .and_then(|rt| rt.block_on(waiting::run(&args, args.waiting.unwrap_or_default())))
            .map(|report| {
                match args.format {
                    Format::Text => print!("{}", report.as_text()),
                    Format::Json => println!("{}", report.as_json()),
                }
                report.is_good()
            }),
        None => many_threaded().and_then(|rt| rt.block_on(load::run(&args))).map(|report| {
            match args.format {
                Format::Text => print!("{}", report.as_text()),
                Format::Json => println!("{}", report.as_json()),
            }
            report.is_good()
        }),
    };
    match outcome {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        Err(error) => {
            eprintln!("loadtest: {error:#}");
            ExitCode::from(2)
        }
    }
}

/// One thread is enough for an echo, and costs the least.
fn single_threaded() -> anyhow::Result<tokio::runtime::Runtime> {
    Ok(tokio::runtime::Builder::new_current_thread().enable_all().build()?)
}

fn many_threaded() -> anyhow::Result<tokio::runtime::Runtime> {
    Ok(tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?)
}
