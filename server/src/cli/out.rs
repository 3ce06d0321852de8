//! Standard output. A reader that has seen enough (`granary runs list | head -1`) closes its end; that is its right, no fault of
//! ours and no reason to die in the middle of something. What is said afterwards is said to nobody.

use std::io::{ErrorKind, Write};
use std::sync::OnceLock;

/// Why nothing can be written any more; empty if the reader has gone.
static CLOSED: OnceLock<String> = OnceLock::new();

/// As `println!`, but never panics.
macro_rules! say {
    () => { $crate::cli::out::write(format_args!("\n")) };
    ($($words:tt)+) => { $crate::cli::out::write(format_args!("{}\n", format_args!($($words)+))) };
}

/// As `print!`, but never panics.
macro_rules! say_part {
    ($($words:tt)+) => { $crate::cli::out::write(format_args!($($words)+)) };
}

pub(crate) use {say, say_part};

pub fn write(words: std::fmt::Arguments<'_>) {
    if is_closed() {
        return;
    }
    let mut out = std::io::stdout().lock();
    if let Err(error) = out.write_fmt(words).and_then(|()| out.flush()) {
        let why = if error.kind() == ErrorKind::BrokenPipe { String::new() } else { error.to_string() };
        let _ = CLOSED.set(why);
    }
}

/// Nobody reads: who prints for ever should end.
pub fn is_closed() -> bool {
    CLOSED.get().is_some()
}

/// Words were lost although somebody wanted them, e.g. on a full disk.
pub fn fault() -> Option<&'static str> {
    CLOSED.get().map(String::as_str).filter(|why| !why.is_empty())
}

/// A line on standard error. If it cannot be said there is nobody to say it to.
pub fn complain(words: &str) {
    let _ = writeln!(std::io::stderr(), "{words}");
}
