//! Durations and moments as authors write them.

use jiff::{SignedDuration, Span, SpanRelativeTo, Timestamp};

/// Ten years: beyond it a wait cannot be meant.
pub const DURATION_MS_MAX: u64 = 10 * 366 * 24 * 3_600 * 1_000;

/// `PT2S`, `P1DT2H`, `2s`, `5m`, `1h`, `3d`, `250ms`, in milliseconds. A day is 24 hours; months and years have no length.
///
/// # Errors
/// "Expected …, but …"
pub fn parse_duration(text: &str) -> Result<u64, String> {
    let refuse =
        || format!("Expected a duration such as `PT2S`, `90s`, `5m` or `1h`, but found {}", super::tree::quote(text));
    let milliseconds = if text.starts_with(['P', 'p']) {
        let span: Span = text.parse().map_err(|_| refuse())?;
        let exact: SignedDuration = span.to_duration(SpanRelativeTo::days_are_24_hours()).map_err(|_| refuse())?;
        exact.as_millis() as f64
    } else {
        let at = text.find(|c: char| c.is_ascii_alphabetic()).ok_or_else(refuse)?;
        let (number, unit) = text.split_at(at);
        if !number.starts_with(|c: char| c.is_ascii_digit()) {
            return Err(refuse());
        }
        let number: f64 = number.trim_end().parse().map_err(|_| refuse())?;
        number
            * match unit {
                "ms" => 1.0,
                "s" => 1_000.0,
                "m" => 60_000.0,
                "h" => 3_600_000.0,
                "d" => 86_400_000.0,
                _ => return Err(refuse()),
            }
    };
    bounded(milliseconds)
        .ok_or_else(|| format!("Expected a duration from 0 to ten years, but found {}", super::tree::quote(text)))
}

/// A number of seconds, in milliseconds.
///
/// # Errors
/// It is negative or beyond ten years.
pub fn duration_of_seconds(seconds: f64) -> Result<u64, String> {
    bounded(seconds * 1_000.0)
        .ok_or_else(|| format!("Expected a number of seconds from 0 to ten years, but found {seconds}"))
}

/// An RFC 3339 moment, in milliseconds since the epoch.
///
/// # Errors
/// It has no zone, or is none.
pub fn parse_moment(text: &str) -> Result<i64, String> {
    let moment: Timestamp = text.parse().map_err(|_| {
        format!(
            "Expected a moment with its zone, such as `2026-12-24T18:00:00Z`, but found {}",
            super::tree::quote(text)
        )
    })?;
    Ok(moment.as_millisecond())
}

/// Rounded up: never early.
fn bounded(milliseconds: f64) -> Option<u64> {
    (milliseconds.is_finite() && (0.0..=DURATION_MS_MAX as f64).contains(&milliseconds))
        .then_some(milliseconds.ceil() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_or_refused() {
        let good = [
            ("PT2S", 2_000),
            ("PT1.5S", 1_500),
            ("P1DT1H", 90_000_000),
            ("2s", 2_000),
            ("0.5s", 500),
            ("250ms", 250),
            ("5m", 300_000),
            ("1h", 3_600_000),
            ("3d", 259_200_000),
            ("0s", 0),
        ];
        for (text, wanted) in good {
            assert_eq!(parse_duration(text), Ok(wanted), "{text}");
        }
        for text in ["", "5", "s", "-5s", "5 weeks", "P1M", "P", "PT", "-PT5S", "20000d", "NaNs", "1e9h", "infs"] {
            assert!(parse_duration(text).unwrap_err().starts_with("Expected a duration"), "{text}");
        }
        assert_eq!(duration_of_seconds(0.0001), Ok(1));
        assert!(duration_of_seconds(-1.0).is_err() && duration_of_seconds(f64::NAN).is_err());
    }

    #[test]
    fn moments_need_a_zone() {
        assert_eq!(parse_moment("1970-01-01T00:00:01Z"), Ok(1_000));
        assert_eq!(parse_moment("1970-01-01T01:00:01+01:00"), Ok(1_000));
        assert!(parse_moment("2026-12-24T18:00:00").is_err());
        assert!(parse_moment("tomorrow").is_err());
    }
}
