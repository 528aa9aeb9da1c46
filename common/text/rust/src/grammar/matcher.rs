//! The position of one sequence in its grammar.

use llguidance::Matcher;

use super::plain_words;
use crate::error::{Code, Error, Result};

pub struct Sequence {
    matcher: Matcher,
}

/// Reports that the grammar reached a limit in the middle of a text.
fn failed(error: anyhow::Error) -> Error {
    Error::new(Code::ResourceExhausted, plain_words(&format!("{error:#}")))
}

impl Sequence {
    pub fn new(matcher: Matcher) -> Self {
        Self { matcher }
    }

    /// Validates the tokens first, because a forbidden token would leave the matcher in an error
    /// state.
    pub fn consume(&mut self, ids: &[u32]) -> Result<()> {
        let n = self.matcher.try_consume_tokens(ids).map_err(failed)?;
        if n == ids.len() {
            return Ok(());
        }
        Err(Error::new(
            Code::FailedPrecondition,
            format!("token {} does not continue the grammar", ids[n]),
        ))
    }

    /// Sets a bit in `words` for each token that may follow, including EOS. Returns whether the
    /// text may end here.
    pub fn mask(&mut self, words: &mut [u32]) -> Result<bool> {
        let mask = self.matcher.compute_mask_or_eos().map_err(failed)?;
        let n = words.len().min(mask.as_slice().len());
        words[..n].copy_from_slice(&mask.as_slice()[..n]);
        words[n..].fill(0);
        Ok(self.matcher.is_stopped() || self.matcher.is_accepting().map_err(failed)?)
    }
}
