//! Byte-level BPE as introduced by GPT-2: bytes are spelled with a printable alphabet, and a
//! regular expression splits the text before merging.

use std::collections::HashMap;

use serde_json::{json, Map, Value};
use tokenizers::utils::byte_level::BYTES_CHAR_LOOKUP;

use super::added::{self, AddedToken};
use crate::error::{Code, Error, Result};

/// How text is split into words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Words<'a> {
    Gpt2,
    /// Splits off every digit, then splits the rest as GPT-2 does.
    DigitsThenGpt2,
    Pattern(&'a str),
}

pub const LLAMA3: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
pub const QWEN2: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
pub const TEKKEN: &str = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+";

pub struct ByteLevel<'a> {
    pub vocab: Vec<(String, u32)>,
    pub merges: Vec<(String, String)>,
    pub words: Words<'a>,
    /// Apply Unicode normalization form C first.
    pub nfc: bool,
    /// A word that is itself a token becomes that token, without merging.
    pub ignore_merges: bool,
    pub add_prefix_space: bool,
    pub added: Vec<AddedToken>,
}

impl ByteLevel<'_> {
    pub fn into_config(self) -> Result<Value> {
        let mut ids: HashMap<&str, u32> = HashMap::with_capacity(self.vocab.len());
        for (token, id) in &self.vocab {
            if let Some(other) = ids.insert(token, *id) {
                return Err(Error::new(
                    Code::InvalidArgument,
                    format!("the tokens {other} and {id} are both \"{token}\""),
                ));
            }
        }
        let added_tokens = added::place(&self.added, &ids)?;
        let vocab: Map<String, Value> = self
            .vocab
            .into_iter()
            .map(|(token, id)| (token, Value::from(id)))
            .collect();
        let merges: Vec<Value> = self
            .merges
            .into_iter()
            .map(|(left, right)| Value::Array(vec![left.into(), right.into()]))
            .collect();
        let byte_level = |use_regex: bool| json!({"type": "ByteLevel", "add_prefix_space": false, "use_regex": use_regex});
        let mut normalizers = Vec::new();
        if self.nfc {
            normalizers.push(json!({"type": "NFC"}));
        }
        if self.add_prefix_space {
            normalizers.push(prefix_space());
        }
        let words = match self.words {
            Words::Gpt2 => byte_level(true),
            Words::DigitsThenGpt2 => json!({"type": "Sequence", "pretokenizers": [
                {"type": "Digits", "individual_digits": true}, byte_level(true),
            ]}),
            Words::Pattern(pattern) => json!({"type": "Sequence", "pretokenizers": [
                {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated",
                 "invert": false},
                byte_level(false),
            ]}),
        };
        Ok(json!({
            "version": "1.0",
            "added_tokens": added_tokens,
            "normalizer": {"type": "Sequence", "normalizers": normalizers},
            "pre_tokenizer": words,
            "post_processor": null,
            "decoder": {"type": "ByteLevel"},
            "model": {"type": "BPE", "vocab": vocab, "merges": merges,
                      "ignore_merges": self.ignore_merges},
        }))
    }
}

/// A normalizer step that puts a space before every text that has none: the library's Metaspace
/// with a space as its mark.
fn prefix_space() -> Value {
    json!({"type": "MetaspaceNormalizer", "replacement": " ", "prepend": "always",
           "drop_whitespace": false})
}

/// Rewrites ByteLevel with add_prefix_space, which the library does not support, as `prefix_space`.
pub fn lower_prefix_space(config: &mut Value) {
    let Some(cut) = config.get_mut("pre_tokenizer") else {
        return;
    };
    let cut = match cut.pointer_mut("/pretokenizers") {
        // Only if it sees whole texts: after another split, every word would get a space.
        Some(Value::Array(members)) if members.len() == 1 => &mut members[0],
        Some(_) => return,
        None => cut,
    };
    let is = |key: &str, wanted: Value| cut.get(key) == Some(&wanted);
    if !is("type", "ByteLevel".into()) || !is("add_prefix_space", true.into()) {
        return;
    }
    cut["add_prefix_space"] = false.into();
    let declared = config["normalizer"].take();
    let steps: Vec<Value> = [declared, prefix_space()]
        .into_iter()
        .filter(|step| !step.is_null())
        .collect();
    config["normalizer"] = json!({"type": "Sequence", "normalizers": steps});
}

/// Spells bytes with the byte-level alphabet.
pub fn spell(bytes: &[u8]) -> String {
    bytes
        .iter()
        .map(|&byte| BYTES_CHAR_LOOKUP[usize::from(byte)])
        .collect()
}

/// Parses "left right", the form of a merge in merges.txt and GGUF.
pub fn split_merge(line: &str) -> Option<(String, String)> {
    let (left, right) = line.split_once(' ')?;
    (!left.is_empty() && !right.is_empty() && !right.contains(' '))
        .then(|| (left.to_string(), right.to_string()))
}
