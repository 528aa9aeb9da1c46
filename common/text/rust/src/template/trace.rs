//! Finds the parts of a rendered text that a person wrote.
//!
//! Nearly every special token has a bracket or a bar in its spelling. Those characters in the
//! request's strings are replaced one for one by private-use characters, and the text is rendered a
//! second time: the replacements then show where the strings went. The replacement may change what
//! the template does, for example if it looks for `</think>` in an answer. In that case the
//! literals that the template looks for are left unchanged. In the end the two texts must be equal;
//! otherwise a string is not followed.
//!
//! If not everything is followed, the second text becomes the control. None of its special tokens
//! can come from a person, so the first text must not have more of them.

use serde_json::{Map, Value};

use crate::abi::Range;

const MARKED: [char; 7] = ['<', '>', '[', ']', '{', '}', '|'];
/// Private-use planes 15 and 16, divided into blocks with one code for each character of MARKED.
const FIRST_CODE: u32 = 0xF_0000;
const N_BLOCKS: u32 = 0x1_0000 / 8;
/// Limits on the cost of a request. Text that is not found within these limits is not followed.
const MAX_RENDERS: usize = 64;
const MAX_BYTES: usize = 64 << 20;
const MAX_STEPS: u64 = super::FUEL;

/// The remaining budget of a search: renders, bytes read and written by them, and their steps.
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

/// A rendered text, and the number of steps the template took to write it.
pub struct Written {
    pub text: String,
    pub n_steps: u64,
}

/// Calls `visit_string` with every string of the request. This includes keys, because those in a
/// tool's schema are free text, and roles, because the client chooses them.
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

/// Whether the string could contain part of a special token.
pub fn is_marked(text: &str) -> bool {
    text.contains(MARKED)
}

/// The replacement characters of one render: a block that the request itself does not use.
#[derive(Clone, Copy)]
pub struct Codes {
    base: u32,
}

impl Codes {
    /// `None` if the request uses every block.
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

    /// Replaces the marked characters of `text`, except inside the literals `kept`.
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

    /// Undoes the replacements. Returns the text and the places where they were.
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

/// Which characters of one string are replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Follow {
    No,
    /// All except those in literals that the template looks for.
    ButLiterals,
    All,
}

/// Result of a search.
#[derive(Default)]
pub struct Found {
    /// The text that a person wrote, as far as it was followed.
    pub plain: Vec<Range>,
    /// Set unless everything was followed: the text in which a person's brackets and bars are
    /// replaced.
    pub control: Option<String>,
}

/// Searches for replacements that do not change the text.
pub struct Search<'a> {
    pub codes: Codes,
    /// Renders with the given treatment of each marked string, and with these literals kept.
    pub render: &'a dyn Fn(&[Follow], &[String]) -> Option<Written>,
    /// The render of the unchanged request.
    pub plain: &'a Written,
    pub n_request_bytes: usize,
    pub left: Budget,
}

impl Search<'_> {
    fn render(&mut self, follow: &[Follow], kept: &[String]) -> Option<String> {
        let rendered = (self.render)(follow, kept);
        // A failed render is charged like the render of the unchanged request.
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

    /// `literals`: strings of the template's code that the request's strings contain. `None` if the
    /// template refuses the request once its brackets and bars are replaced.
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
        // A literal that the template only writes, and never looks for, need not be kept.
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

/// String literals in the template's code that contain a marked character.
pub fn literals(source: &str) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    let mut rest = source;
    while let Some(at) = rest.find("{{").into_iter().chain(rest.find("{%")).min() {
        rest = &rest[at + 2..];
        rest = code_literals(rest, &mut found);
    }
    found
}

/// Collects literals up to the end of one code block. Returns the source after it.
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

/// Reads a literal that starts at its quote. Returns it and its size in the source, in bytes.
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
