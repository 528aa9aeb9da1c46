//! Finding what a person wrote in a rendered text.
//!
//! Nearly every special token has a bracket or a bar in its spelling. The text is rendered a second
//! time with those characters of the request's strings replaced by private-use ones, one for one,
//! which then show where they went. Where the replacement changes what the template does (it looks
//! for `</think>` in an answer, say), the literals that it looks for are left as they are; in the
//! end the two texts must be equal, or a string is not followed.
//!
//! Whenever not all is followed, the second text is the control: no special token in it can be a
//! person's, so the first one must not have more of them.

use serde_json::{Map, Value};

use crate::abi::Range;

const MARKED: [char; 7] = ['<', '>', '[', ']', '{', '}', '|'];
/// Private-use planes 15 and 16, cut into blocks of one code for each of MARKED.
const FIRST_CODE: u32 = 0xF_0000;
const N_BLOCKS: u32 = 0x1_0000 / 8;
/// Beyond any of these a request costs too much; what is not found by then is not followed.
const MAX_RENDERS: usize = 64;
const MAX_BYTES: usize = 64 << 20;
const MAX_STEPS: u64 = super::FUEL;

/// What a search may still cost: renders, bytes read and written for them, and their steps.
pub struct Budget {
    n_renders: usize,
    n_bytes: usize,
    n_steps: u64,
}

impl Budget {
    pub fn new() -> Self {
        Self {
            n_renders: MAX_RENDERS,
            n_bytes: MAX_BYTES,
            n_steps: MAX_STEPS,
        }
    }

    fn has_more(&self) -> bool {
        self.n_renders > 0 && self.n_bytes > 0 && self.n_steps > 0
    }

    fn take_render(&mut self, n_bytes: usize, n_steps: u64) {
        self.n_renders = self.n_renders.saturating_sub(1);
        self.n_bytes = self.n_bytes.saturating_sub(n_bytes);
        self.n_steps = self.n_steps.saturating_sub(n_steps);
    }
}

/// A text and how many steps the template took to write it.
pub struct Written {
    pub text: String,
    pub n_steps: u64,
}

/// Calls `visit` with every string of the request: keys are free text as well, in the schema of a
/// tool, and a role is what the client says it is.
pub fn visit(value: &mut Value, visit_string: &mut dyn FnMut(&mut String)) {
    match value {
        Value::String(text) => visit_string(text),
        Value::Array(items) => items.iter_mut().for_each(|item| visit(item, visit_string)),
        Value::Object(entries) => visit_entries(entries, visit_string),
        _ => {}
    }
}

pub fn visit_entries(entries: &mut Map<String, Value>, visit_string: &mut dyn FnMut(&mut String)) {
    *entries = std::mem::take(entries)
        .into_iter()
        .map(|(mut key, mut entry)| {
            visit_string(&mut key);
            visit(&mut entry, visit_string);
            (key, entry)
        })
        .collect();
}

/// Whether the string could hold part of a special token.
pub fn is_marked(text: &str) -> bool {
    text.contains(MARKED)
}

/// The replacement characters of one rendering: a block that the request itself does not use.
#[derive(Clone, Copy)]
pub struct Codes {
    base: u32,
}

impl Codes {
    /// `None` when the request uses every block.
    pub fn unused_in<'a>(texts: impl Iterator<Item = &'a str>) -> Option<Self> {
        let mut used = vec![false; N_BLOCKS as usize];
        for code in texts.flat_map(str::chars).map(u32::from) {
            if (FIRST_CODE..FIRST_CODE + N_BLOCKS * 8).contains(&code) {
                used[((code - FIRST_CODE) / 8) as usize] = true;
            }
        }
        let block = used.iter().position(|used| !used)? as u32;
        Some(Self {
            base: FIRST_CODE + block * 8,
        })
    }

    /// `text` with its marked characters replaced, save in the literals `kept`.
    pub fn replace(&self, text: &str, kept: &[String]) -> String {
        let mut out = String::with_capacity(text.len() * 2);
        let mut rest = text;
        while let Some(c) = rest.chars().next() {
            let literal = kept.iter().filter(|k| rest.starts_with(k.as_str()));
            let n_bytes = match literal.map(String::len).max() {
                Some(n_bytes) => {
                    out.push_str(&rest[..n_bytes]);
                    n_bytes
                }
                None => {
                    let at = MARKED.iter().position(|&marked| marked == c);
                    out.push(at.map_or(c, |at| char::from_u32(self.base + at as u32).unwrap_or(c)));
                    c.len_utf8()
                }
            };
            rest = &rest[n_bytes..];
        }
        out
    }

    /// The text without replacements, and where they were.
    pub fn restore(&self, rendered: &str) -> (String, Vec<Range>) {
        let mut out = String::with_capacity(rendered.len());
        let mut ranges: Vec<Range> = Vec::new();
        for c in rendered.chars() {
            let at = u32::from(c).wrapping_sub(self.base) as usize;
            let Some(&marked) = MARKED.get(at) else {
                out.push(c);
                continue;
            };
            let begin = out.len();
            out.push(marked);
            match ranges.last_mut() {
                Some(last) if last.end == begin => last.end = out.len(),
                _ => ranges.push(Range {
                    begin,
                    end: out.len(),
                }),
            }
        }
        (out, ranges)
    }
}

/// What is replaced in one string.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Follow {
    No,
    /// All but the literals that the template looks for.
    ButLiterals,
    All,
}

/// What was found.
#[derive(Default)]
pub struct Found {
    /// What a person wrote, as far as it was followed.
    pub plain: Vec<Range>,
    /// Unless all was followed: the text in which a person's brackets and bars are others.
    pub control: Option<String>,
}

/// The search for what can be replaced without a change of the text.
pub struct Search<'a> {
    pub codes: Codes,
    /// Renders with each marked string treated as said, and with these literals kept.
    pub render: &'a dyn Fn(&[Follow], &[String]) -> Option<Written>,
    /// The request as it is.
    pub plain: &'a Written,
    pub n_request_bytes: usize,
    pub left: Budget,
}

impl Search<'_> {
    fn render(&mut self, follow: &[Follow], kept: &[String]) -> Option<String> {
        let rendered = (self.render)(follow, kept);
        // One that fails is taken to cost what the request as it is does.
        let cost = rendered.as_ref().unwrap_or(self.plain);
        self.left
            .take_render(self.n_request_bytes + cost.text.len(), cost.n_steps);
        rendered.map(|written| written.text)
    }

    fn attempt(&mut self, follow: &[Follow], kept: &[String]) -> Option<Vec<Range>> {
        if !self.left.has_more() {
            return None;
        }
        let rendered = self.render(follow, kept)?;
        let (restored, ranges) = self.codes.restore(&rendered);
        (restored == self.plain.text).then_some(ranges)
    }

    /// `literals`: strings of the template's code that the request's strings contain. `None` when
    /// the template refuses the request once its brackets and bars are replaced.
    pub fn run(&mut self, n_strings: usize, literals: &[String]) -> Option<Found> {
        let control = self.render(&vec![Follow::All; n_strings], &[])?;
        let (restored, plain) = self.codes.restore(&control);
        if restored == self.plain.text {
            return Some(Found {
                plain,
                control: None,
            });
        }
        Some(Found {
            plain: self.follow_some(n_strings, literals),
            control: Some(control),
        })
    }

    fn follow_some(&mut self, n_strings: usize, literals: &[String]) -> Vec<Range> {
        let mut follow = vec![Follow::ButLiterals; n_strings];
        let mut kept = literals.to_vec();
        let mut best = match self.attempt(&follow, &kept) {
            Some(ranges) => ranges,
            None => {
                follow.fill(Follow::No);
                Vec::new()
            }
        };
        // A literal that the template only writes need not be kept.
        for literal in literals {
            let fewer: Vec<String> = kept.iter().filter(|k| *k != literal).cloned().collect();
            if follow.contains(&Follow::No) {
                break;
            }
            if let Some(ranges) = self.attempt(&follow, &fewer) {
                kept = fewer;
                best = ranges;
            }
        }
        for i in 0..n_strings {
            for more in [Follow::All, Follow::ButLiterals] {
                let before = std::mem::replace(&mut follow[i], more);
                if before == more {
                    break;
                }
                match self.attempt(&follow, &kept) {
                    Some(ranges) => {
                        best = ranges;
                        break;
                    }
                    None => follow[i] = before,
                }
            }
        }
        best
    }
}

/// The string literals in a template's code that have a marked character.
pub fn literals(source: &str) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    let mut rest = source;
    while let Some(at) = rest.find("{{").into_iter().chain(rest.find("{%")).min() {
        rest = &rest[at + 2..];
        rest = code_literals(rest, &mut found);
    }
    found
}

/// Collects literals up to the end of one block of code; returns what follows it.
fn code_literals<'a>(code: &'a str, found: &mut Vec<String>) -> &'a str {
    let mut rest = code;
    loop {
        let end = rest.find("}}").into_iter().chain(rest.find("%}")).min();
        let quote = rest.find(['\'', '"']);
        match (quote, end) {
            (Some(quote), end) if end.is_none_or(|end| quote < end) => {
                let (literal, n_bytes) = read_literal(&rest[quote..]);
                if is_marked(&literal) && !found.contains(&literal) {
                    found.push(literal);
                }
                rest = &rest[quote + n_bytes..];
            }
            (_, Some(end)) => return &rest[end + 2..],
            _ => return "",
        }
    }
}

/// A literal that starts at its quote, and how many bytes of source it takes.
fn read_literal(source: &str) -> (String, usize) {
    let mut literal = String::new();
    let mut chars = source.char_indices();
    let quote = chars.next().map(|(_, quote)| quote);
    while let Some((at, c)) = chars.next() {
        if Some(c) == quote {
            return (literal, at + c.len_utf8());
        }
        if c != '\\' {
            literal.push(c);
            continue;
        }
        match chars.next() {
            Some((_, 'n')) => literal.push('\n'),
            Some((_, 't')) => literal.push('\t'),
            Some((_, 'r')) => literal.push('\r'),
            Some((_, other)) => literal.push(other),
            None => {}
        }
    }
    (literal, source.len())
}
