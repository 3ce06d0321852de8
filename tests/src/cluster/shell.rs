//! Other programs, asked once and never waited for without end.

use anyhow::{Context, Result, bail};
use std::io::{Read, Write};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// `ip`, `nft` and the like answer at once; on a busy machine, a little later.
const ANSWER_MAX: Duration = Duration::from_secs(20);

/// Runs `line` (split at blanks) and gives what it printed.
///
/// # Errors
/// It cannot be started, does not end, or says no; with its own words.
pub fn ask(line: &str) -> Result<String> {
    feed(line, "")
}

/// As [`ask`], with `input` on its standard input.
///
/// # Errors
/// As [`ask`].
pub fn feed(line: &str, input: &str) -> Result<String> {
    let mut words = line.split_whitespace();
    let program = words.next().context("an empty line is no command")?;
    let mut child = Command::new(program)
        .args(words)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .with_context(|| format!("start `{line}`"))?;
    // The input is far below the size of a pipe's buffer; dropping the handle is the end of the input.
    if let Some(mut stdin) = child.stdin.take() {
        stdin.write_all(input.as_bytes())?;
    }
    let deadline = Instant::now() + ANSWER_MAX;
    let status = loop {
        if let Some(status) = child.try_wait()? {
            break status;
        }
        if Instant::now() > deadline {
            let _ = child.kill();
            let _ = child.wait();
            bail!("`{line}` did not end within {ANSWER_MAX:?}");
        }
        std::thread::sleep(Duration::from_millis(2));
    };
    let (mut said, mut complained) = (String::new(), String::new());
    child.stdout.take().context("piped")?.read_to_string(&mut said)?;
    child.stderr.take().context("piped")?.read_to_string(&mut complained)?;
    if !status.success() {
        bail!("`{line}` ended with {status}: {}", complained.trim());
    }
    Ok(said)
}
