//! Merges of a byte-pair vocabulary that does not list them: SentencePiece and tiktoken merge any
//! two neighbours that together are a token, best token first. Listing every split of every token in
//! the order of the tokens says the same to the tokenizers library.

use std::collections::HashMap;

use crate::error::{Code, Error, Result};

/// The splits of a token are compared in full, so its length counts squared. Real ones have at most
/// some hundred bytes.
pub const MAX_PIECE_BYTES: usize = 1024;

/// How the splits of one token are ordered, as the converters of transformers order them.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Splits {
    /// By the length of the left part.
    ByLength,
    /// By the rank of the left part, then of the right one.
    ByRank,
}

/// `pieces`: the tokens that take part, best first, with their ids. Returns ids of left and right.
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
