//! Grammars that constrain generated text, as masks over the vocabulary. llguidance does the work.
//! This module gives it our own token table and protects it from hostile grammars.

mod abi;
mod limits;
mod matcher;
mod source;
mod vocabulary;

use std::panic::{self, AssertUnwindSafe};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use llguidance::api::GrammarInit;
use llguidance::{Logger, Matcher, ParserFactory, TokenParser};

use llguidance::toktrie::InferenceCapabilities;

use crate::error::{catch, Code, Error, Result};
use crate::memory::held_bytes;
use source::Source;
pub use vocabulary::{Table, Vocabulary};

/// Compiling recurses over nested schemas and over definitions that refer to one another; the
/// longest allowed source has about ten thousand of these. Stack pages use memory only when
/// touched.
const COMPILE_STACK_BYTES: usize = 512 << 20;

/// All sequences of a grammar share the lexer's states, which are only ever added.
const LEXER_STATE_BYTES: usize = 1536;

/// Above this number of states, the next sequence starts with a fresh lexer.
const WORN_LEXER_STATES: usize = 20_000;

pub struct Grammar {
    /// Never used itself, so that there is always a fresh parser to clone.
    fresh: TokenParser,
    /// The parser that new sequences are cloned from.
    shared: Mutex<TokenParser>,
    /// Memory held right after compiling.
    compiled_bytes: usize,
}

impl Grammar {
    /// Refuses a grammar with `InvalidArgument` and the reason. For an accepted grammar, the first
    /// mask has already been computed.
    pub fn compile(factory: &Arc<ParserFactory>, source: Source<'_>) -> Result<Self> {
        let run = || catch(|| Self::compile_here(factory, source));
        thread::scope(|scope| {
            let compiler = thread::Builder::new()
                .name("grammar".into())
                .stack_size(COMPILE_STACK_BYTES)
                .spawn_scoped(scope, run)
                .map_err(|e| Error::new(Code::ResourceExhausted, format!("no thread: {e}")))?;
            compiler.join().unwrap_or_else(|_| {
                Err(Error::new(Code::Internal, "the grammar's thread has died"))
            })
        })
    }

    fn compile_here(factory: &Arc<ParserFactory>, source: Source<'_>) -> Result<Self> {
        let limits = limits::of(&source);
        let held_before = held_bytes();
        let fresh = factory
            .create_parser_from_init_ext(
                GrammarInit::Serialized(source.to_grammar(factory.tok_env().tok_trie())?),
                Logger::new(0, 0),
                InferenceCapabilities::default(),
                limits,
            )
            .map_err(refused)?;
        let mut grammar = Self {
            shared: Mutex::new(fresh.deep_clone()),
            fresh,
            compiled_bytes: 0,
        };
        // Some grammars, such as a schema with 2,000 properties, fail only at the first mask.
        grammar
            .new_matcher()
            .compute_mask_or_eos()
            .map_err(refused)?;
        grammar.compiled_bytes = usize::try_from(held_bytes() - held_before).unwrap_or(0);
        if grammar.compiled_bytes > limits::MAX_GRAMMAR_BYTES {
            return Err(Error::new(
                Code::InvalidArgument,
                format!(
                    "takes {} bytes once compiled; at most {} are allowed",
                    grammar.compiled_bytes,
                    limits::MAX_GRAMMAR_BYTES
                ),
            ));
        }
        Ok(grammar)
    }

    /// Memory held now, including the lexer states added since compiling.
    pub fn n_bytes(&self) -> usize {
        let shared = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
        let n_states = panic::catch_unwind(AssertUnwindSafe(|| shared.parser.lexer_stats()))
            .map_or(0, |stats| stats.num_states);
        self.compiled_bytes + n_states * LEXER_STATE_BYTES
    }

    pub fn new_matcher(&self) -> Matcher {
        // A panic while the lock is held poisons it. The checks below detect the damage.
        let mut shared = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
        let stats = panic::catch_unwind(AssertUnwindSafe(|| shared.parser.lexer_stats()));
        if stats.map_or(true, |stats| {
            stats.error || stats.num_states > WORN_LEXER_STATES
        }) {
            *shared = self.fresh.deep_clone();
        }
        Matcher::new(Ok(shared.clone()))
    }
}

/// Returns the library's message without the parts meant for its developers.
fn refused(error: anyhow::Error) -> Error {
    Error::new(Code::InvalidArgument, plain_words(&format!("{error:#}")))
}

fn plain_words(words: &str) -> String {
    let end = ["\n<non-verbose/>", "\n<state>", "\n<backtrace>"]
        .iter()
        .filter_map(|mark| words.find(mark))
        .min()
        .unwrap_or(words.len());
    words[..end].trim_end().to_string()
}
