//! How much a grammar may cost. All limits count what the library does, never time: a grammar is
//! refused, or a text ends, at the same place whenever it is tried.
//!
//! Chosen with `grammar_bench`, so that a mask takes at most some 5 ms of a CPU. In brackets what
//! the JSON schemas of the tests need, in a vocabulary of 128,000 tokens.

use llguidance::api::ParserLimits;
use serde_json::Value;

use super::source::{Kind, Source};

/// What the router writes itself, such as the calls of tools, begins with this line. Clients'
/// grammars may not.
pub const OWN_MARK: &str = "// made by the router\n";

/// Where rows do not grow with the text. [100] An optional property takes four items of the row in
/// which it may come next; others, and those of an enumeration, none.
const MAX_ROW_ITEMS: usize = 2_000;
const MAX_MASK_ITEMS: usize = 2_000; // [300]

/// Bounds rules that a client writes: they may be ambiguous. A row then grows with the text, and the
/// time for it with the third power of its items, which the library does not count.
const MAX_AMBIGUOUS_ROW_ITEMS: usize = 300; // [100]
const MAX_AMBIGUOUS_MASK_ITEMS: usize = 3_000; // [1,000]

/// Shared by a grammar's sequences; one takes about 1.5 KB.
pub const MAX_LEXER_STATES: usize = 50_000; // [500]

/// Held by a compiled grammar.
pub const MAX_GRAMMAR_BYTES: usize = 24 << 20; // [0.3 MB]

fn may_be_ambiguous(source: &Source<'_>) -> bool {
    match source.kind {
        Kind::Lark => !source.text.starts_with(OWN_MARK),
        // What does not parse is refused later.
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
