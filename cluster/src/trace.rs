//! The trace that a call belongs to, as W3C writes it (`traceparent`): taken from the caller, carried over every hop, and shown in
//! the log of each node that has a part in it, as field `trace` of the span `call`.
//!
//! It follows the call through the task that serves it. What a commit sets off later (reminders, the outbox) is no part of it.

use std::fmt;
use tracing::Instrument as _;

/// Its name in headers and envelopes.
pub const TRACEPARENT: &str = "traceparent";

tokio::task_local! {
    static CURRENT: Trace;
}

/// One span of a trace.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Trace {
    id: u128,
    span: u64,
    flags: u8,
}

impl Trace {
    /// A trace that begins here.
    pub fn begin() -> Self {
        Self { id: rand::random::<u128>().max(1), span: span(), flags: 0 }
    }

    /// `None` for what is no `traceparent`. Fields of a later version are ignored, as it demands.
    pub fn parse(text: &str) -> Option<Self> {
        let mut parts = text.split('-');
        let (version, id, span, flags) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
        let is_hex = |text: &str, length| {
            text.len() == length && text.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b))
        };
        let is_formed = is_hex(version, 2) && is_hex(id, 32) && is_hex(span, 16) && is_hex(flags, 2);
        if !is_formed || version == "ff" || (version == "00" && parts.next().is_some()) {
            return None;
        }
        let trace = Self {
            id: u128::from_str_radix(id, 16).ok()?,
            span: u64::from_str_radix(span, 16).ok()?,
            flags: u8::from_str_radix(flags, 16).ok()?,
        };
        (trace.id != 0 && trace.span != 0).then_some(trace)
    }

    /// The next span of the same trace.
    pub fn child(self) -> Self {
        Self { span: span(), ..self }
    }

    /// That of the call which this task serves.
    pub fn current() -> Option<Self> {
        CURRENT.try_with(|trace| *trace).ok()
    }

    /// What the future does belongs to this span.
    pub async fn follow<F: Future>(self, future: F) -> F::Output {
        let span = tracing::debug_span!("call", trace = format_args!("{:032x}", self.id));
        CURRENT.scope(self, future.instrument(span)).await
    }
}

fn span() -> u64 {
    rand::random::<u64>().max(1)
}

impl fmt::Display for Trace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "00-{:032x}-{:016x}-{:02x}", self.id, self.span, self.flags)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_traceparent_reads_back_and_nonsense_is_none() {
        let text = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
        let trace = Trace::parse(text).unwrap();
        assert_eq!(trace.to_string(), text);
        let child = trace.child();
        assert_eq!((child.id, child.flags), (trace.id, trace.flags));
        assert_ne!(child.span, trace.span);
        let begun = Trace::begin();
        assert_eq!(Trace::parse(&begun.to_string()), Some(begun));
        let later = "01-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-more";
        assert_eq!(Trace::parse(later), Some(trace));
        for nonsense in [
            "",
            "00",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-more",
            "ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
            "00-00000000000000000000000000000000-b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01",
            "00-0AF7651916CD43DD8448EB211C80319C-b7ad6b7169203331-01",
            "00-+af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        ] {
            assert_eq!(Trace::parse(nonsense), None, "{nonsense}");
        }
    }

    #[tokio::test]
    async fn a_trace_is_followed_by_what_its_call_awaits() {
        assert_eq!(Trace::current(), None);
        let trace = Trace::begin();
        assert_eq!(trace.follow(async { Trace::current() }).await, Some(trace));
    }
}
