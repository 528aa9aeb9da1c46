//! The vocabulary as a trie, over which masks are computed.

use std::sync::Arc;

use llguidance::earley::SlicedBiasComputer;
use llguidance::toktrie::{
    ApproximateTokEnv, InferenceCapabilities, TokEnv, TokRxInfo, TokTrie, INVALID_TOKEN,
};
use llguidance::ParserFactory;

use crate::error::{Code, Error, Result};

/// Token kinds; see SC_GRAMMAR_TOKEN_*.
const TEXT: u8 = 1;
const SPECIAL: u8 = 2;

/// The trie has room for tokens of 1024 bytes. Tokens longer than this limit are runs of blanks or
/// dashes.
const MAX_TOKEN_BYTES: usize = 512;

/// The trie's `NO_TOKEN`.
const MAX_VOCABULARY: usize = 0xff_ffff;

/// Tokens by id: `kinds[i]` and `bytes[offsets[i]..offsets[i + 1]]`.
pub struct Table<'a> {
    pub kinds: &'a [u8],
    pub offsets: &'a [u32],
    pub bytes: &'a [u8],
    pub eos_ids: &'a [u32],
    /// Width of the logits. Ids from `kinds.len()` on are padding.
    pub n_logits: usize,
}

pub struct Vocabulary {
    pub factory: Arc<ParserFactory>,
}

impl Vocabulary {
    pub fn new(table: &Table<'_>) -> Result<Self> {
        let words = table.words()?;
        let eos = table.eos_ids.first().copied().unwrap_or(INVALID_TOKEN);
        let mut trie = TokTrie::from(&TokRxInfo::new(words.len() as u32, eos), &words);
        if !table.eos_ids.is_empty() {
            trie = trie.with_eos_tokens(table.eos_ids);
        }
        drop(words);
        let env: TokEnv = Arc::new(ApproximateTokEnv::new(trie));
        let mut factory = ParserFactory::new(
            &env,
            InferenceCapabilities::default(),
            &SlicedBiasComputer::general_slices(),
        )
        .map_err(|e| Error::new(Code::InvalidArgument, e.to_string()))?;
        factory.quiet();
        Ok(Self {
            factory: Arc::new(factory),
        })
    }
}

impl Table<'_> {
    fn words(&self) -> Result<Vec<Vec<u8>>> {
        let bad = |what: &str| Err(Error::new(Code::InvalidArgument, what));
        if self.offsets.len() != self.kinds.len() + 1 {
            return bad("the number of offsets must be the number of tokens plus one");
        }
        if self.n_logits == 0 || self.n_logits >= MAX_VOCABULARY {
            return bad("a vocabulary of this size is not supported");
        }
        if self.eos_ids.iter().any(|&id| id as usize >= self.n_logits) {
            return bad("an EOS id is outside the vocabulary");
        }
        let mut words = vec![Vec::new(); self.n_logits];
        let kinds = self.kinds.iter().zip(self.offsets.windows(2));
        for (word, (&kind, range)) in words.iter_mut().zip(kinds) {
            let Some(bytes) = self.bytes.get(range[0] as usize..range[1] as usize) else {
                return bad("offsets are outside the bytes");
            };
            // A token must not contain the marker of special tokens, which is not valid in text.
            let usable = !bytes.is_empty()
                && bytes.len() <= MAX_TOKEN_BYTES
                && !bytes.contains(&TokTrie::SPECIAL_TOKEN_MARKER);
            if !usable {
                continue;
            }
            if kind == SPECIAL {
                word.push(TokTrie::SPECIAL_TOKEN_MARKER);
            }
            if kind == SPECIAL || kind == TEXT {
                word.extend_from_slice(bytes);
            }
        }
        Ok(words)
    }
}
