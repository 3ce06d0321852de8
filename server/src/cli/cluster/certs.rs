//! `granary cluster certs`.

use super::super::out::say;
use super::super::{Common, Exit, Failure};
use granary::certs;
use std::path::PathBuf;

/// Make the certificates and the secret of a cluster
#[derive(clap::Args, Debug)]
#[command(
    after_help = "Examples:\n  granary cluster certs --out certs --names silo-0,silo-1,silo-2\n  granary cluster certs --out certs --names silo-3   \
                        (later: the same authority and secret)\n\nA silo needs ca.pem, NAME.pem, NAME.key and secret. Keep ca.key away from all of them: \
                        whoever has it can add a silo."
)]
pub struct CertsArgs {
    /// Folder; what is in it is used again, and never written over.
    #[arg(long)]
    pub out: PathBuf,
    /// Names of the silos, as in their configurations.
    #[arg(long, value_delimiter = ',', required = true)]
    pub names: Vec<String>,
    /// Names and addresses that all certificates bear besides; silos do not need them.
    #[arg(long, value_delimiter = ',')]
    pub hosts: Vec<String>,
}

pub fn run(common: &Common, args: &CertsArgs) -> Result<Exit, Failure> {
    for name in &args.names {
        granary::config::check_name("--names", name).map_err(|why| Failure::usage(format!("{why}.")))?;
    }
    let today = jiff::Timestamp::now().to_zoned_datetime(jiff::tz::TimeZone::UTC).date();
    let made =
        certs::make(&args.out, &args.names, &args.hosts, today).map_err(|error| Failure::usage(format!("{error}.")))?;
    let files: Vec<String> = made.files.iter().map(|path| path.display().to_string()).collect();
    if common.is_json() {
        say!("{}", serde_json::json!({ "files": files }));
        return Ok(Exit::Good);
    }
    files.iter().for_each(|file| say!("{file}"));
    if made.authority_found {
        say!("signed by the authority that was there");
    }
    Ok(Exit::Good)
}
