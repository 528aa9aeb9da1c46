//! Limits on the cost of a grammar. All limits count work of the library, never time: every run
//! refuses a grammar, or ends a text, at the same place.
//!
//! The values were chosen with `grammar_bench` so that a mask takes at most about 5 ms of CPU time,
//! and about 1 ms with a grammar of a client that is ambiguous: several of them share a step.
//! The numbers in brackets are what the JSON schemas of the tests need with a vocabulary of 128,000
//! tokens.

use llguidance::api::ParserLimits;
use serde_json::Value;

use super::source::{Kind, Source};

/// Grammars that the router writes itself, such as those for tool calls, begin with this line. A
/// client's grammar must not.
pub const OWN_MARK: &str = "// made by the router\n";

/// Limits for grammars whose parser rows do not grow with the text. [100] An optional property
/// takes four items in the row in which it may come next. Other properties, and the values of an
/// enumeration, take none.
const MAX_ROW_ITEMS: usize = 2_000;
const MAX_MASK_ITEMS: usize = 2_000; // [300]

/// Limits for rules that a client writes, which may be ambiguous. A row of an ambiguous grammar
/// grows with the text, and its time grows with the cube of its items. The library does not count
/// that time.
const MAX_AMBIGUOUS_ROW_ITEMS: usize = 160; // [100]
const MAX_AMBIGUOUS_MASK_ITEMS: usize = 1_600; // [1,000]

/// Shared by all sequences of a grammar. One state takes about 1.5 KB.
pub const MAX_LEXER_STATES: usize = 50_000; // [500]

/// Memory that a compiled grammar may hold.
pub const MAX_GRAMMAR_BYTES: usize = 24 << 20; // [0.3 MB]

fn may_be_ambiguous(source: &Source<'_>) -> bool {
    match source.kind {
        Kind::Lark => !source.text.starts_with(OWN_MARK),
        // A source that does not parse is refused later.
        Kind::CallsOrForm => serde_json::from_str(source.text).map_or(true, |parts: Value| {
            parts["form"]["kind"] == Kind::Lark as i32
        }),
        _ => false,
    }
}

pub fn of(source: &Source<'_>) -> ParserLimits {
    let (row, mask) = if may_be_ambiguous(source) {
        (MAX_AMBIGUOUS_ROW_ITEMS, MAX_AMBIGUOUS_MASK_ITEMS)
    } else {
        (MAX_ROW_ITEMS, MAX_MASK_ITEMS)
    };
    ParserLimits {
        max_items_in_row: row,
        step_max_items: mask,
        step_lexer_fuel: 50_000, // [2,000]
        initial_lexer_fuel: 1_000_000,
        max_lexer_states: MAX_LEXER_STATES,
        max_grammar_size: 40_000, // [5,000]
        verbose_errors: false,
        ..ParserLimits::default()
    }
}
