//! The tokenizer of a .gguf file, from its tokenizer.ggml.* metadata.
//! https://github.com/ggml-org/ggml/blob/master/docs/gguf.md

use serde_json::Value;

use super::added::AddedToken;
use super::byte_level::{split_merge, ByteLevel, Words, LLAMA3, QWEN2, TEKKEN};
use super::sentencepiece::{Kind, Piece, Prefix, SentencePiece};
use crate::checkpoint::SpecialTokens;
use crate::error::{Code, Error, Result};

#[derive(Clone, Copy, Default)]
pub struct GgufIds {
    pub bos: Option<u32>,
    pub eos: Option<u32>,
    pub unk: Option<u32>,
    pub pad: Option<u32>,
}

pub struct Gguf<'a> {
    /// tokenizer.ggml.model and tokenizer.ggml.pre.
    pub model: &'a str,
    pub pre: &'a str,
    pub tokens: Vec<&'a str>,
    /// One per token, or empty. The same holds for `kinds`.
    pub scores: &'a [f32],
    pub kinds: &'a [i32],
    pub merges: Vec<&'a str>,
    pub ids: GgufIds,
    pub add_bos: Option<bool>,
    pub add_eos: Option<bool>,
    pub add_space_prefix: Option<bool>,
}

/// Meaning of a tokenizer.ggml.pre: how text is split and normalized, and whether BOS comes first
/// by default.
struct Pre {
    names: &'static [&'static str],
    words: Words<'static>,
    nfc: bool,
    ignore_merges: bool,
    add_bos: bool,
}

const PRES: [Pre; 5] = [
    Pre {
        names: &["llama-bpe", "llama-v3", "llama3"],
        words: Words::Pattern(LLAMA3),
        nfc: false,
        ignore_merges: true,
        add_bos: true,
    },
    Pre {
        names: &["qwen2"],
        words: Words::Pattern(QWEN2),
        nfc: true,
        ignore_merges: false,
        add_bos: false,
    },
    Pre {
        names: &["tekken"],
        words: Words::Pattern(TEKKEN),
        nfc: false,
        ignore_merges: true,
        add_bos: true,
    },
    Pre {
        names: &["gpt-2", "default", "", "phi-2", "olmo"],
        words: Words::Gpt2,
        nfc: false,
        ignore_merges: false,
        add_bos: false,
    },
    Pre {
        names: &["smollm", "starcoder", "refact", "command-r"],
        words: Words::DigitsThenGpt2,
        nfc: false,
        ignore_merges: false,
        add_bos: false,
    },
];

fn bad(what: impl Into<String>) -> Error {
    Error::new(Code::InvalidArgument, what)
}

impl Gguf<'_> {
    pub fn to_config(&self) -> Result<(Value, SpecialTokens)> {
        let n = self.tokens.len();
        for (name, len) in [
            ("scores", self.scores.len()),
            ("token_type", self.kinds.len()),
        ] {
            if len != 0 && len != n {
                return Err(bad(format!(
                    "tokenizer.ggml.{name} has {len} entries for {n} tokens"
                )));
            }
        }
        let special = self.special()?;
        match self.model {
            "llama" => self.sentencepiece(special),
            "gpt2" => self.byte_level(special),
            other => Err(Error::new(
                Code::FailedPrecondition,
                format!(
                    "tokenizer.ggml.model \"{other}\" is not one of llama, gpt2: use the \
                     checkpoint's safetensors folder with its tokenizer.json"
                ),
            )),
        }
    }

    fn special(&self) -> Result<SpecialTokens> {
        let mut special = SpecialTokens {
            add_bos: self.add_bos,
            add_eos: self.add_eos,
            ..SpecialTokens::default()
        };
        for (role, id) in [
            ("bos_token", self.ids.bos),
            ("eos_token", self.ids.eos),
            ("unk_token", self.ids.unk),
            ("pad_token", self.ids.pad),
        ] {
            let Some(id) = id else { continue };
            let token = self.tokens.get(id as usize).ok_or_else(|| {
                bad(format!(
                    "the {role} is id {id}, but there are {} tokens",
                    self.tokens.len()
                ))
            })?;
            special.default_role(role, token);
        }
        Ok(special)
    }

    fn kind(&self, id: usize) -> Result<Kind> {
        let Some(&number) = self.kinds.get(id) else {
            return Ok(Kind::Normal);
        };
        Kind::from_number(number.into())
            .ok_or_else(|| bad(format!("token {id} has the unknown token_type {number}")))
    }

    fn sentencepiece(&self, mut special: SpecialTokens) -> Result<(Value, SpecialTokens)> {
        if self.scores.is_empty() {
            return Err(bad("tokenizer.ggml.scores is absent"));
        }
        let mut pieces = Vec::with_capacity(self.tokens.len());
        for (id, token) in self.tokens.iter().enumerate() {
            pieces.push(Piece {
                text: token.to_string(),
                score: self.scores[id],
                kind: self.kind(id)?,
            });
        }
        special.add_bos.get_or_insert(true);
        special.add_eos.get_or_insert(false);
        let prefix = if self.add_space_prefix.unwrap_or(true) {
            Prefix::First
        } else {
            Prefix::Never
        };
        let config = SentencePiece {
            pieces,
            is_unigram: false,
            prefix,
            collapse_spaces: false,
            charsmap: Vec::new(),
            added: special.all_added(),
        }
        .to_config()?;
        Ok((config, special))
    }

    fn byte_level(&self, mut special: SpecialTokens) -> Result<(Value, SpecialTokens)> {
        let pre = PRES
            .iter()
            .find(|pre| pre.names.contains(&self.pre))
            .ok_or_else(|| {
                let names: Vec<&str> = PRES.iter().flat_map(|pre| pre.names).copied().collect();
                Error::new(
                    Code::FailedPrecondition,
                    format!(
                        "tokenizer.ggml.pre \"{}\" is not one of {}: use the checkpoint's \
                         safetensors folder with its tokenizer.json",
                        self.pre,
                        names
                            .into_iter()
                            .filter(|name| !name.is_empty())
                            .collect::<Vec<_>>()
                            .join(", ")
                    ),
                )
            })?;
        // Padding and added tokens follow the model's own tokens. The library numbers added tokens
        // from there.
        let mut kinds = Vec::with_capacity(self.tokens.len());
        for id in 0..self.tokens.len() {
            kinds.push(self.kind(id)?);
        }
        let end_of = |wanted: &dyn Fn(&Kind) -> bool| {
            kinds.iter().rposition(wanted).map_or(0, |last| last + 1)
        };
        let n_known = end_of(&|kind| *kind != Kind::Unused);
        let n_model = end_of(&|kind| matches!(kind, Kind::Normal | Kind::Byte));
        let n_model = match kinds[n_model..n_known].contains(&Kind::Unused) {
            true => n_known,
            false => n_model,
        };
        let mut added: Vec<AddedToken> = Vec::new();
        for (id, kind) in (0u32..).zip(&kinds[..n_known]) {
            if matches!(kind, Kind::Control | Kind::UserDefined) || id as usize >= n_model {
                let special = *kind == Kind::Control;
                added.push(AddedToken::new(Some(id), self.tokens[id as usize], special));
            }
        }
        added.extend(special.all_added());
        let mut merges = Vec::with_capacity(self.merges.len());
        for (i, line) in self.merges.iter().enumerate() {
            merges.push(split_merge(line).ok_or_else(|| {
                bad(format!(
                    "tokenizer.ggml.merges[{i}] \"{line}\" is not two tokens"
                ))
            })?);
        }
        special.add_bos.get_or_insert(pre.add_bos);
        special.add_eos.get_or_insert(false);
        let config = ByteLevel {
            vocab: self.tokens[..n_model]
                .iter()
                .map(ToString::to_string)
                .zip(0..)
                .collect(),
            merges,
            words: pre.words,
            nfc: pre.nfc,
            ignore_merges: pre.ignore_merges,
            add_prefix_space: false,
            added,
        }
        .into_config()?;
        Ok((config, special))
    }
}
