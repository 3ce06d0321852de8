//! Tables for people.

use super::style::Style;
use granary_proto::wire::Timestamp;

/// Columns wider than this are cut, but for the last.
const CELL_CHARS_MAX: usize = 48;

pub struct Table {
    header: Vec<&'static str>,
    rows: Vec<Vec<String>>,
    /// Which column holds a state to be coloured.
    state_column: Option<usize>,
}

impl Table {
    pub fn new(header: &[&'static str]) -> Self {
        let state_column = header.iter().position(|name| *name == "STATE");
        Self { header: header.to_vec(), rows: Vec::new(), state_column }
    }

    pub fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        let last = self.header.len() - 1;
        // A cell is one line, whatever a name or message holds.
        let clean = |text: String| text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect::<String>();
        let cells = cells.into_iter().map(clean).enumerate();
        self.rows.push(cells.map(|(n, cell)| if n == last { cell } else { cut(&cell, CELL_CHARS_MAX) }).collect());
    }

    pub fn render(&self, style: Style) -> String {
        let columns = self.header.len();
        let width = |n: usize| {
            let cells = self.rows.iter().filter_map(|row| row.get(n)).map(|cell| cell.chars().count());
            cells.chain([self.header[n].len()]).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..columns).map(width).collect();
        let line = |cells: Vec<&str>, header: bool| {
            let mut out = String::new();
            for (n, cell) in cells.iter().enumerate() {
                let padded =
                    if n + 1 == columns { (*cell).to_owned() } else { format!("{cell:<width$}  ", width = widths[n]) };
                out.push_str(&match (header, Some(n) == self.state_column) {
                    (true, _) => style.bold(&padded),
                    (false, true) => style.state(cell, &padded),
                    (false, false) => padded,
                });
            }
            format!("{}\n", out.trim_end())
        };
        let mut out = line(self.header.clone(), true);
        self.rows.iter().for_each(|row| out.push_str(&line(row.iter().map(String::as_str).collect(), false)));
        out
    }
}

pub fn cut(text: &str, most: usize) -> String {
    if text.chars().count() <= most {
        return text.to_owned();
    }
    text.chars().take(most.saturating_sub(1)).chain(['…']).collect()
}

/// `2026-11-30 15:30:08`, UTC; a dash for none.
pub fn moment(at: Option<&Timestamp>) -> String {
    at.map_or_else(|| "-".to_owned(), |at| at.to_string().replace('T', " ").chars().take(19).collect())
}

/// `0.41 s`, `12.0 s`, `3 m 05 s`, `2 h 10 m`.
pub fn span(milliseconds: i64) -> String {
    let ms = milliseconds.max(0);
    match ms {
        0..10_000 => format!("{:.2} s", ms as f64 / 1_000.0),
        10_000..60_000 => format!("{:.1} s", ms as f64 / 1_000.0),
        60_000..3_600_000 => format!("{} m {:02} s", ms / 60_000, ms / 1_000 % 60),
        _ => format!("{} h {:02} m", ms / 3_600_000, ms / 60_000 % 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_stand_under_each_other() {
        let mut table = Table::new(&["RUN", "STATE", "TEXT"]);
        table.row(["1".to_owned(), "Running".to_owned(), "a\nb".to_owned()]);
        table.row(["12345".to_owned(), "Failed".to_owned(), String::new()]);
        assert_eq!(table.render(Style::plain()), "RUN    STATE    TEXT\n1      Running  a b\n12345  Failed\n");
    }

    #[test]
    fn spans_are_short() {
        for (ms, wanted) in
            [(412, "0.41 s"), (12_000, "12.0 s"), (185_000, "3 m 05 s"), (7_800_000, "2 h 10 m"), (-5, "0.00 s")]
        {
            assert_eq!(span(ms), wanted);
        }
        assert_eq!(cut("abcdef", 4), "abc…");
    }
}
