//! Text, YAML or JSON, to a [`Node`] tree. Everything an author could send is bounded here: size, depth, nodes, aliases.
//!
//! Scalars follow the core schema of YAML 1.2 with two exceptions for safety's sake: `010` and `1_000` are text. So are `no`,
//! `on`, `yes` and `off`, as 1.2 has it.

use super::finding::{Finding, Spot};
use super::tree::{Data, Entry, Node, quote};
use crate::condition::SAFE_INTEGER_MAX;
use grain_contract::limits::{DOCUMENT_BYTES_MAX, JSON_DEPTH_MAX};
use serde_json::Number;
use serde_saphyr::granit_parser::{ErrorKind, Event, Options, Parser, ScalarStyle, Span, Tag};
use std::collections::HashMap;

/// Values in one document (keys not counted), counted again for each alias.
const NODES_MAX: usize = 50_000;
/// Text in one document, counted again for each alias.
const TEXT_BYTES_MAX: usize = 2 * DOCUMENT_BYTES_MAX;

/// The tree, or why there is none. Findings that leave a tree (doubled keys, numbers) are pushed.
pub(super) fn tree(text: &str, findings: &mut Vec<Finding>) -> Option<Node> {
    if text.len() > DOCUMENT_BYTES_MAX {
        let message = format!("Expected a document of at most {DOCUMENT_BYTES_MAX} bytes, but it has {}", text.len());
        findings.push(Finding::error("too-large", Spot::default(), "", message));
        return None;
    }
    let mut builder =
        Builder { findings, frames: Vec::new(), anchors: HashMap::new(), nodes: 0, text_bytes: 0, root: None };
    match builder.run(text) {
        Ok(()) => {
            let root = builder.root.take();
            if root.is_none() {
                findings.push(Finding::error(
                    "syntax",
                    Spot::default(),
                    "",
                    "Expected a document, but the text is empty",
                ));
            }
            root
        }
        Err(finding) => {
            findings.push(*finding);
            None
        }
    }
}

struct Builder<'f> {
    findings: &'f mut Vec<Finding>,
    frames: Vec<Frame>,
    anchors: HashMap<usize, Anchored>,
    nodes: usize,
    text_bytes: usize,
    root: Option<Node>,
}

struct Anchored {
    node: Node,
    nodes: usize,
    text_bytes: usize,
    depth: usize,
}

struct Frame {
    spot: Spot,
    anchor: usize,
    /// Counts when it began: the difference at its end is its own size.
    nodes: usize,
    text_bytes: usize,
    /// Levels below it.
    depth: usize,
    inside: Inside,
}

enum Inside {
    List(Vec<Node>),
    Map { entries: Vec<Entry>, seen: HashMap<String, Spot>, key: Option<(String, Spot)> },
}

type Step = Result<(), Box<Finding>>;

impl Builder<'_> {
    fn run(&mut self, text: &str) -> Step {
        let mut options = Options::default();
        options.flow_nesting_limit = 2 * JSON_DEPTH_MAX;
        options.block_nesting_limit = 2 * JSON_DEPTH_MAX;
        options.set_emit_comments(false);
        let mut parser = Parser::new_from_str_with_options(text, options);
        let mut documents = 0;
        while let Some(event) = parser.next_event() {
            let (event, span) = event.map_err(|error| {
                let spot = spot_of(error.marker().line(), error.marker().col());
                match error.kind() {
                    ErrorKind::RecursionLimitExceeded => too_deep(spot),
                    _ => fault("syntax", spot, format!("Expected YAML or JSON, but {}", error.info().trim())),
                }
            })?;
            match event {
                Event::DocumentStart(..) => {
                    documents += 1;
                    if documents > 1 {
                        return Err(fault(
                            "syntax",
                            spot(&span),
                            "Expected one document, but a second one begins here".into(),
                        ));
                    }
                }
                event => self.event(event, spot(&span))?,
            }
        }
        Ok(())
    }

    fn event(&mut self, event: Event<'_>, spot: Spot) -> Step {
        match event {
            Event::Scalar(text, style, anchor, tag) => {
                let text_bytes = text.len();
                if let Some(Inside::Map { key: key @ None, .. }) = self.frames.last_mut().map(|frame| &mut frame.inside)
                {
                    *key = Some((map_key(&text, style, spot)?, spot));
                    return self.count(0, text_bytes, 0, spot);
                }
                self.count(1, text_bytes, 0, spot)?;
                let as_text = style != ScalarStyle::Plain || is_text_tag(tag.as_deref(), spot)?;
                let data = if as_text { Data::Text(text.into_owned()) } else { self.plain(&text, spot)? };
                let node = Node { spot, data };
                self.remember(anchor, &node, 1, text_bytes, 0, spot)?;
                self.place(node, 0)
            }
            Event::SequenceStart(_, anchor, tag) => self.begin(Inside::List(Vec::new()), anchor, tag.as_deref(), spot),
            Event::MappingStart(_, anchor, tag) => {
                let inside = Inside::Map { entries: Vec::new(), seen: HashMap::new(), key: None };
                self.begin(inside, anchor, tag.as_deref(), spot)
            }
            Event::SequenceEnd | Event::MappingEnd => self.end(),
            Event::Alias(anchor) => {
                let Some(anchored) = self.anchors.get(&anchor) else {
                    return Err(fault(
                        "alias",
                        spot,
                        "Expected an alias to a finished value, but it stands inside of that value".into(),
                    ));
                };
                let (nodes, text_bytes, depth) = (anchored.nodes, anchored.text_bytes, anchored.depth);
                self.count(nodes, text_bytes, depth, spot)?;
                let node = Node { spot, data: self.anchors[&anchor].node.data.clone() };
                self.place(node, depth)
            }
            _ => Ok(()),
        }
    }

    fn begin(&mut self, inside: Inside, anchor: usize, tag: Option<&Tag>, spot: Spot) -> Step {
        if let Some(tag) = tag {
            return Err(unknown_tag(tag, spot));
        }
        if let Some(Inside::Map { key: None, .. }) = self.frames.last().map(|frame| &frame.inside) {
            return Err(fault("syntax", spot, "Expected a text as key, but found a list or an object".into()));
        }
        self.count(1, 0, 1, spot)?;
        let (nodes, text_bytes) = (self.nodes - 1, self.text_bytes);
        self.frames.push(Frame { spot, anchor, nodes, text_bytes, depth: 0, inside });
        Ok(())
    }

    fn end(&mut self) -> Step {
        let frame = self.frames.pop().expect("the parser ends only what it began");
        let data = match frame.inside {
            Inside::List(elements) => Data::List(elements),
            Inside::Map { entries, .. } => Data::Map(entries),
        };
        let node = Node { spot: frame.spot, data };
        let (nodes, text_bytes) = (self.nodes - frame.nodes, self.text_bytes - frame.text_bytes);
        self.remember(frame.anchor, &node, nodes, text_bytes, frame.depth + 1, frame.spot)?;
        self.place(node, frame.depth + 1)
    }

    fn place(&mut self, node: Node, depth: usize) -> Step {
        let Some(frame) = self.frames.last_mut() else {
            self.root = Some(node);
            return Ok(());
        };
        frame.depth = frame.depth.max(depth);
        match &mut frame.inside {
            Inside::List(elements) => elements.push(node),
            Inside::Map { entries, seen, key } => {
                let Some((key, spot)) = key.take() else {
                    return Err(fault("syntax", node.spot, "Expected a text as key, but found an alias".into()));
                };
                if let Some(first) = seen.get(&key) {
                    let message = format!(
                        "Expected each key once, but {} of line {} is here again, in line {}",
                        quote(&key),
                        first.line,
                        spot.line
                    );
                    self.findings.push(Finding::error("doubled-key", spot, "", message));
                } else {
                    seen.insert(key.clone(), spot);
                    entries.push(Entry { key, spot, value: node });
                }
            }
        }
        Ok(())
    }

    /// Keeps a copy for aliases; the copy counts, since anchors inside anchors would multiply it.
    fn remember(
        &mut self,
        anchor: usize,
        node: &Node,
        nodes: usize,
        text_bytes: usize,
        depth: usize,
        spot: Spot,
    ) -> Step {
        if anchor == 0 {
            return Ok(());
        }
        self.count(nodes, text_bytes, 0, spot)?;
        self.anchors.insert(anchor, Anchored { node: node.clone(), nodes, text_bytes, depth });
        Ok(())
    }

    fn count(&mut self, nodes: usize, text_bytes: usize, levels: usize, spot: Spot) -> Step {
        self.nodes += nodes;
        self.text_bytes += text_bytes;
        if self.nodes > NODES_MAX {
            return Err(fault(
                "too-large",
                spot,
                format!("Expected at most {NODES_MAX} values, aliases counted, but there are more"),
            ));
        }
        if self.text_bytes > TEXT_BYTES_MAX {
            return Err(fault(
                "too-large",
                spot,
                format!("Expected at most {TEXT_BYTES_MAX} bytes of text, aliases counted, but there are more"),
            ));
        }
        if self.frames.len() + levels > JSON_DEPTH_MAX {
            return Err(too_deep(spot));
        }
        Ok(())
    }

    fn plain(&mut self, text: &str, spot: Spot) -> Result<Data, Box<Finding>> {
        Ok(match text {
            "" | "~" | "null" | "Null" | "NULL" => Data::Null,
            "true" | "True" | "TRUE" => Data::Bool(true),
            "false" | "False" | "FALSE" => Data::Bool(false),
            _ => match number(text) {
                None => Data::Text(text.to_owned()),
                Some(value) => match value.filter(|n| n.abs() <= SAFE_INTEGER_MAX as f64).and_then(exact) {
                    Some(number) => Data::Number { number, written: text.to_owned() },
                    None => {
                        let message = format!(
                            "Expected a number within ±{SAFE_INTEGER_MAX}, but found {}; put it in quotes to keep it as text",
                            quote(text)
                        );
                        self.findings.push(Finding::error("number-range", spot, "", message));
                        Data::Text(text.to_owned())
                    }
                },
            },
        })
    }
}

/// `None`: no number. `Some(None)`: a number that has no value here (infinite, not a number).
fn number(text: &str) -> Option<Option<f64>> {
    let unsigned = text.strip_prefix(['-', '+']).unwrap_or(text);
    if matches!(unsigned, ".inf" | ".Inf" | ".INF") || matches!(text, ".nan" | ".NaN" | ".NAN") {
        return Some(None);
    }
    for (prefix, radix) in [("0x", 16), ("0o", 8)] {
        if let Some(digits) = text.strip_prefix(prefix)
            && !digits.is_empty()
            && digits.chars().all(|digit| digit.is_digit(radix))
        {
            return Some(u64::from_str_radix(digits, radix).ok().map(|n| n as f64));
        }
    }
    let digits = |text: &str| text.chars().all(|character| character.is_ascii_digit());
    let (mantissa, exponent) = match unsigned.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, Some(exponent.strip_prefix(['-', '+']).unwrap_or(exponent))),
        None => (unsigned, None),
    };
    let (whole, fraction) =
        mantissa.split_once('.').map_or((mantissa, None), |(whole, fraction)| (whole, Some(fraction)));
    let has_digits = !whole.is_empty() || fraction.is_some_and(|fraction| !fraction.is_empty());
    let shaped = digits(whole) && fraction.is_none_or(digits) && exponent.is_none_or(|e| !e.is_empty() && digits(e));
    if !has_digits || !shaped {
        return None;
    }
    let leading_zero = whole.len() > 1 && whole.starts_with('0') && fraction.is_none() && exponent.is_none();
    if leading_zero { None } else { Some(text.parse::<f64>().ok().filter(|n| n.is_finite())) }
}

fn exact(number: f64) -> Option<Number> {
    if number.fract() == 0.0 { Some(Number::from(number as i64)) } else { Number::from_f64(number) }
}

fn map_key(text: &str, style: ScalarStyle, spot: Spot) -> Result<String, Box<Finding>> {
    if style == ScalarStyle::Plain && matches!(text, "" | "~" | "null" | "Null" | "NULL") {
        return Err(fault("syntax", spot, "Expected a text as key, but found nothing (null)".into()));
    }
    if style == ScalarStyle::Plain && text == "<<" {
        return Err(fault(
            "merge-key",
            spot,
            "Expected plain keys, but found the merge key `<<`; write the fields out".into(),
        ));
    }
    Ok(text.to_owned())
}

fn is_text_tag(tag: Option<&Tag>, spot: Spot) -> Result<bool, Box<Finding>> {
    match tag {
        None => Ok(false),
        Some(tag) if tag.is_yaml_core_schema_tag("str") => Ok(true),
        Some(tag) => Err(unknown_tag(tag, spot)),
    }
}

fn unknown_tag(tag: &Tag, spot: Spot) -> Box<Finding> {
    fault("tag", spot, format!("Expected a value without a tag, but found {}", quote(&tag.original())))
}

fn too_deep(spot: Spot) -> Box<Finding> {
    fault("too-deep", spot, format!("Expected at most {JSON_DEPTH_MAX} levels, but it is nested deeper"))
}

fn fault(code: &'static str, spot: Spot, message: String) -> Box<Finding> {
    Box::new(Finding::error(code, spot, "", message))
}

fn spot(span: &Span) -> Spot {
    spot_of(span.start.line(), span.start.col())
}

/// The parser counts columns from 0.
fn spot_of(line: usize, column: usize) -> Spot {
    let clamp = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
    Spot { line: clamp(line), column: clamp(column).saturating_add(1) }
}
