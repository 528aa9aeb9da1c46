//! SentencePiece: pieces with scores and kinds, from a tokenizer.model or from GGUF metadata.
//!
//! The result matches transformers' LlamaTokenizer and GemmaTokenizer: spaces become "▁", unknown
//! characters become byte tokens, control pieces become special tokens, and user-defined pieces are
//! matched in the original text.

use std::collections::HashMap;

use base64::Engine as _;
use serde_json::{json, Map, Value};

use super::added::{self, AddedToken};
use super::merges::{self, Splits};
use super::protobuf::fields;
use crate::checkpoint::SpecialTokens;
use crate::error::{Code, Error, Result};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Normal,
    Unknown,
    Control,
    UserDefined,
    Unused,
    Byte,
}

impl Kind {
    /// Kind numbers of sentencepiece_model.proto, which GGUF also uses.
    pub fn from_number(number: i64) -> Option<Self> {
        Some(match number {
            1 => Self::Normal,
            2 => Self::Unknown,
            3 => Self::Control,
            4 => Self::UserDefined,
            5 => Self::Unused,
            6 => Self::Byte,
            _ => return None,
        })
    }

    /// Whether text can become this piece. Text must never become a control piece, or a person
    /// could write one. The library alone would allow a merge into any piece.
    fn is_text(self) -> bool {
        matches!(self, Self::Normal | Self::UserDefined | Self::Unused)
    }
}

#[derive(Clone, Debug)]
pub struct Piece {
    pub text: String,
    pub score: f32,
    pub kind: Kind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Prefix {
    Never,
    /// A space before the text.
    First,
    /// A space before the text and after every special token.
    Always,
}

pub struct SentencePiece {
    /// Indexed by id.
    pub pieces: Vec<Piece>,
    pub is_unigram: bool,
    pub prefix: Prefix,
    /// Runs of spaces become one space, and spaces at both ends are removed.
    pub collapse_spaces: bool,
    /// Compiled normalization rules, or empty.
    pub charsmap: Vec<u8>,
    pub added: Vec<AddedToken>,
}

fn bad(what: impl Into<String>) -> Error {
    Error::new(Code::InvalidArgument, what)
}

impl SentencePiece {
    pub fn to_config(&self) -> Result<Value> {
        let ids = self.ids()?;
        let mut tokens = self.added.clone();
        for (id, piece) in (0u32..).zip(&self.pieces) {
            if matches!(piece.kind, Kind::Control | Kind::UserDefined) {
                let special = piece.kind == Kind::Control;
                tokens.push(AddedToken::new(Some(id), &piece.text, special));
            }
        }
        Ok(json!({
            "version": "1.0",
            "added_tokens": added::place(&tokens, &ids)?,
            "normalizer": self.normalizer(),
            "pre_tokenizer": null,
            "post_processor": null,
            "decoder": self.decoder(),
            "model": if self.is_unigram { self.unigram()? } else { self.bpe()? },
        }))
    }

    fn ids(&self) -> Result<HashMap<&str, u32>> {
        let mut ids = HashMap::with_capacity(self.pieces.len());
        for (id, piece) in (0u32..).zip(&self.pieces) {
            if let Some(other) = ids.insert(piece.text.as_str(), id) {
                return Err(bad(format!(
                    "the pieces {other} and {id} are both \"{}\"",
                    piece.text
                )));
            }
        }
        Ok(ids)
    }

    fn unk_id(&self) -> Option<usize> {
        self.pieces.iter().position(|p| p.kind == Kind::Unknown)
    }

    fn has_all_bytes(&self) -> bool {
        let n_bytes = self.pieces.iter().filter(|p| p.kind == Kind::Byte).count();
        n_bytes == 256
    }

    fn normalizer(&self) -> Value {
        let replace = |pattern: Value, content: &str| json!({"type": "Replace", "pattern": pattern, "content": content});
        let mut steps = Vec::new();
        if !self.charsmap.is_empty() {
            let charsmap = base64::engine::general_purpose::STANDARD.encode(&self.charsmap);
            steps.push(json!({"type": "Precompiled", "precompiled_charsmap": charsmap}));
        }
        if self.collapse_spaces {
            steps.push(replace(json!({"Regex": " {2,}"}), " "));
            steps.push(replace(json!({"Regex": "^ | $"}), ""));
        }
        steps.push(match self.prefix {
            Prefix::Never => replace(json!({"String": " "}), "▁"),
            Prefix::First | Prefix::Always => json!({
                "type": "MetaspaceNormalizer", "replacement": "▁", "drop_whitespace": false,
                "prepend": if self.prefix == Prefix::First { "first" } else { "always" },
            }),
        });
        json!({"type": "Sequence", "normalizers": steps})
    }

    fn decoder(&self) -> Value {
        let mut steps = vec![
            json!({"type": "Replace", "pattern": {"String": "▁"}, "content": " "}),
            json!({"type": "ByteFallback"}),
            json!({"type": "Fuse"}),
        ];
        if self.prefix != Prefix::Never {
            steps.push(json!({"type": "Strip", "content": " ", "start": 1, "stop": 0}));
        }
        json!({"type": "Sequence", "decoders": steps})
    }

    fn unigram(&self) -> Result<Value> {
        // The library's trie is as deep as the longest piece and is freed recursively, so bound the
        // depth.
        if let Some(id) = (self.pieces.iter()).position(|p| p.text.len() > merges::MAX_PIECE_BYTES)
        {
            return Err(bad(format!(
                "piece {id} has {} bytes; at most {} are supported",
                self.pieces[id].text.len(),
                merges::MAX_PIECE_BYTES
            )));
        }
        let vocab: Vec<Value> = self
            .pieces
            .iter()
            .map(|p| json!([p.text, f64::from(p.score)]))
            .collect();
        Ok(json!({
            "type": "Unigram", "vocab": vocab, "unk_id": self.unk_id(),
            "byte_fallback": self.has_all_bytes(),
        }))
    }

    fn bpe(&self) -> Result<Value> {
        let mut pieces: Vec<(&[u8], u32)> = (0u32..)
            .zip(&self.pieces)
            .filter(|(_, piece)| piece.kind.is_text())
            .map(|(id, piece)| (piece.text.as_bytes(), id))
            .collect();
        // Sort by score, not by id: Mistral's runs of spaces have low ids but the lowest scores.
        let score = |id: u32| self.pieces[id as usize].score;
        pieces.sort_by(|(_, a), (_, b)| score(*b).total_cmp(&score(*a)));
        let text = |id: u32| Value::String(self.pieces[id as usize].text.clone());
        let merges: Vec<Value> = merges::generate(&pieces, Splits::ByLength)?
            .into_iter()
            .map(|(left, right)| Value::Array(vec![text(left), text(right)]))
            .collect();
        let vocab: Map<String, Value> = (0u32..)
            .zip(&self.pieces)
            .map(|(id, piece)| (piece.text.clone(), Value::from(id)))
            .collect();
        Ok(json!({
            "type": "BPE", "vocab": vocab, "merges": merges, "fuse_unk": true,
            "unk_token": self.unk_id().map(|id| &self.pieces[id].text),
            "byte_fallback": self.has_all_bytes(),
        }))
    }
}

/// Contents of a tokenizer.model file (sentencepiece_model.proto).
struct ModelFile {
    pieces: Vec<Piece>,
    model_type: i64,
    spaces_behind_words: bool,
    unk_id: i64,
    bos_id: i64,
    eos_id: i64,
    pad_id: i64,
    charsmap: Vec<u8>,
    add_dummy_prefix: bool,
    remove_extra_whitespaces: bool,
}

const UNIGRAM: i64 = 1;
const BPE: i64 = 2;

impl ModelFile {
    fn parse(bytes: &[u8]) -> Result<Self> {
        let mut model = Self {
            pieces: Vec::new(),
            model_type: UNIGRAM,
            spaces_behind_words: false,
            unk_id: 0,
            bos_id: 1,
            eos_id: 2,
            pad_id: -1,
            charsmap: Vec::new(),
            add_dummy_prefix: true,
            remove_extra_whitespaces: true,
        };
        fields(bytes, |number, value| {
            match number {
                1 => model.pieces.push(read_piece(value.bytes()?)?),
                2 => fields(value.bytes()?, |number, value| {
                    match number {
                        3 => model.model_type = value.int()?,
                        24 => model.spaces_behind_words = value.flag()?,
                        40 => model.unk_id = value.int()?,
                        41 => model.bos_id = value.int()?,
                        42 => model.eos_id = value.int()?,
                        43 => model.pad_id = value.int()?,
                        _ => {}
                    }
                    Ok(())
                })?,
                3 => fields(value.bytes()?, |number, value| {
                    match number {
                        2 => model.charsmap = value.bytes()?.to_vec(),
                        3 => model.add_dummy_prefix = value.flag()?,
                        4 => model.remove_extra_whitespaces = value.flag()?,
                        _ => {}
                    }
                    Ok(())
                })?,
                _ => {}
            }
            Ok(())
        })?;
        if model.pieces.is_empty() {
            return Err(bad("is not a SentencePiece model: it has no pieces"));
        }
        Ok(model)
    }

    fn piece(&self, id: i64) -> Option<&Piece> {
        self.pieces.get(usize::try_from(id).ok()?)
    }
}

fn read_piece(message: &[u8]) -> Result<Piece> {
    let mut piece = Piece {
        text: String::new(),
        score: 0.0,
        kind: Kind::Normal,
    };
    fields(message, |number, value| {
        match number {
            1 => piece.text = value.text()?.to_string(),
            2 => piece.score = value.float()?,
            3 => {
                let kind = value.int()?;
                piece.kind = Kind::from_number(kind)
                    .ok_or_else(|| bad(format!("a piece has the unknown type {kind}")))?;
            }
            _ => {}
        }
        Ok(())
    })?;
    Ok(piece)
}

/// Reads a tokenizer.model. Adds information that `special` lacks and the file has.
pub fn from_model_file(bytes: &[u8], special: &mut SpecialTokens) -> Result<Value> {
    let mut model = ModelFile::parse(bytes)?;
    if model.model_type != UNIGRAM && model.model_type != BPE {
        return Err(bad(
            "is a SentencePiece model of words or characters; unigram and BPE are supported",
        ));
    }
    if model.spaces_behind_words {
        return Err(bad(
            "was trained with treat_whitespace_as_suffix, which is not supported",
        ));
    }
    for (role, id) in [
        ("unk_token", model.unk_id),
        ("bos_token", model.bos_id),
        ("eos_token", model.eos_id),
        ("pad_token", model.pad_id),
    ] {
        if let Some(piece) = model.piece(id) {
            special.default_role(role, &piece.text);
        }
    }
    special.add_bos.get_or_insert(model.bos_id >= 0);
    special.add_eos.get_or_insert(false);
    rename_placeholders(&mut model.pieces, &special.added);

    let add_prefix = special.add_prefix_space.unwrap_or(model.add_dummy_prefix);
    SentencePiece {
        is_unigram: model.model_type == UNIGRAM,
        prefix: match (add_prefix, special.legacy) {
            (false, _) => Prefix::Never,
            (true, Some(true)) => Prefix::Always,
            (true, _) => Prefix::First,
        },
        collapse_spaces: model.remove_extra_whitespaces,
        charsmap: model.charsmap,
        pieces: model.pieces,
        added: special.all_added(),
    }
    .to_config()
}

/// Fine-tunes use reserved pieces by declaring another text for their id.
fn rename_placeholders(pieces: &mut [Piece], added: &[AddedToken]) {
    let mut known: std::collections::HashSet<String> =
        pieces.iter().map(|piece| piece.text.clone()).collect();
    for token in added {
        let Some(piece) = token.id.and_then(|id| pieces.get_mut(id as usize)) else {
            continue;
        };
        if piece.text != token.content && known.insert(token.content.clone()) {
            piece.text = token.content.clone();
        }
    }
}
