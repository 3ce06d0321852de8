//! How far the other silos' clocks are from this one's, in Prometheus' text form.

use super::silo::head;
use cluster::clocks::Clocks;
use cluster::directory::Directory;
use std::fmt::Write as _;
use std::sync::{Arc, OnceLock};

#[derive(Default)]
pub struct ClockFigures(OnceLock<(Arc<Clocks>, Directory)>);

impl ClockFigures {
    /// Told once, by a silo that has others beside it.
    pub(crate) fn attach(&self, clocks: Arc<Clocks>, directory: Directory) {
        let _ = self.0.set((clocks, directory));
    }

    pub(super) fn write(&self, text: &mut String) {
        let Some((clocks, directory)) = self.0.get() else { return };
        let name = |node| directory.name_of(node).unwrap_or_else(|| format!("{node:016x}"));
        let peers: Vec<(String, i64)> = clocks.offsets().into_iter().map(|(node, at)| (name(node), at.ms)).collect();
        write(&peers, clocks.off_ms(), text);
    }
}

fn write(peers: &[(String, i64)], off_ms: Option<i64>, text: &mut String) {
    const PEER: &str = "granary_clock_offset_seconds";
    const OWN: &str = "granary_clock_off_seconds";
    head(text, PEER, "gauge", "Another silo's wall clock, ahead of this one's.");
    for (name, ms) in peers {
        let _ = writeln!(text, "{PEER}{{peer=\"{name}\"}} {}", seconds(*ms));
    }
    if let Some(ms) = off_ms {
        head(text, OWN, "gauge", "This silo's wall clock, ahead of the middle of all.");
        let _ = writeln!(text, "{OWN} {}", seconds(ms));
    }
}

fn seconds(ms: i64) -> f64 {
    ms as f64 / 1_000.0
}

#[cfg(test)]
mod tests {
    use super::*;

    /// [FR-017]
    #[test]
    fn each_peer_has_its_own_line_in_seconds() {
        let mut text = String::new();
        write(&[("silo-2".to_owned(), -1_500), ("silo-3".to_owned(), 4)], Some(-4), &mut text);
        assert!(text.contains("granary_clock_offset_seconds{peer=\"silo-2\"} -1.5\n"), "{text}");
        assert!(text.contains("granary_clock_offset_seconds{peer=\"silo-3\"} 0.004\n"), "{text}");
        assert!(text.contains("granary_clock_off_seconds -0.004\n"), "{text}");
        let mut text = String::new();
        write(&[], None, &mut text);
        assert!(!text.contains("off_seconds "), "{text}");
    }
}
