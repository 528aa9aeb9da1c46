//! Derives the merges of a byte-pair vocabulary that does not list them. SentencePiece and tiktoken
//! merge any two neighbours that form a token, best token first. For the tokenizers library this is
//! equivalent to a list of every split of every token, in token order.

use std::collections::HashMap;

use crate::error::{Code, Error, Result};

/// All splits of a token are compared, so its cost grows with the square of its length. Real tokens
/// have at most some hundred bytes.
pub const MAX_PIECE_BYTES: usize = 1024;

/// Order of the splits of one token, as in the converters of transformers.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Splits {
    /// By the length of the left part.
    ByLength,
    /// By the rank of the left part, then of the right part.
    ByRank,
}

/// `pieces`: the tokens that take part and their ids, best first. Returns the ids of left and right
/// parts.
pub fn generate(pieces: &[(&[u8], u32)], splits: Splits) -> Result<Vec<(u32, u32)>> {
    let ranks: HashMap<&[u8], (usize, u32)> = pieces
        .iter()
        .enumerate()
        .map(|(rank, &(piece, id))| (piece, (rank, id)))
        .collect();
    let mut merges = Vec::with_capacity(pieces.len());
    let mut of_piece = Vec::new();
    for &(piece, id) in pieces {
        if piece.len() > MAX_PIECE_BYTES {
            return Err(Error::new(
                Code::InvalidArgument,
                format!(
                    "token {id} has {} bytes; at most {MAX_PIECE_BYTES} are supported",
                    piece.len()
                ),
            ));
        }
        of_piece.clear();
        for at in 1..piece.len() {
            let (left, right) = piece.split_at(at);
            if let (Some(left), Some(right)) = (ranks.get(left), ranks.get(right)) {
                of_piece.push((*left, *right));
            }
        }
        if splits == Splits::ByRank {
            of_piece.sort_unstable();
        }
        merges.extend(
            of_piece
                .iter()
                .map(|((_, left), (_, right))| (*left, *right)),
        );
    }
    Ok(merges)
}
