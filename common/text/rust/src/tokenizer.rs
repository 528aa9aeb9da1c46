//! A checkpoint's tokenizer: the library's pipeline with the settings of the checkpoint's files.

use std::collections::HashMap;
use std::path::Path;

use serde_json::Value;
use tokenizers::pipeline::{EncodeOptions, Override, PipelineToken, PipelineTokenizer};

use crate::abi::Range;
use crate::checkpoint::SpecialTokens;
use crate::error::{catch, Code, Error, Result};
use crate::files;
use crate::pieces::Pieces;
use crate::rendered;
use crate::vocab::{self, Gguf};

/// No vocabulary has higher ids. Without this limit a bad file would cause huge tables.
const MAX_IDS: u64 = 1 << 24;

const MODELS: [&str; 4] = ["BPE", "Unigram", "WordPiece", "WordLevel"];

pub struct Tokenizer {
    pipeline: PipelineTokenizer,
    pieces: Pieces,
    /// Tokens of the model. Added tokens are in the pipeline.
    vocab: HashMap<String, u32>,
    special: SpecialTokens,
    /// Token ids put before and after a text that is encoded with special tokens.
    prefix: Vec<u32>,
    suffix: Vec<u32>,
    /// Special tokens that are matched after normalization, with the checkpoint's spelling.
    normalized_special: Vec<(String, u32)>,
    /// Special tokens that the model itself produces from their spelling.
    model_special: Vec<(String, u32)>,
}

/// Turns truncation and padding off. Checkpoints carry these settings from their training by
/// accident.
fn options(encode_special_tokens_as_text: bool, add_special_tokens: bool) -> EncodeOptions {
    EncodeOptions {
        add_special_tokens,
        encode_special_tokens: encode_special_tokens_as_text,
        padding: Override::Off,
        truncation: Override::Off,
    }
}

/// Builds the library's pipeline. The library panics on some vocabularies, among them small ones
/// that its perfect hash cannot place. A panic means that the file cannot be used.
fn build_pipeline(config: &Value) -> Result<PipelineTokenizer> {
    let bad = |what: String| Error::new(Code::InvalidArgument, what);
    catch(|| tokenizers::from_json(&config.to_string()).map_err(|e| bad(e.to_string())))
        .map_err(|e| bad(e.message))
}

impl Tokenizer {
    pub fn load(dir: &Path) -> Result<Self> {
        let mut special = SpecialTokens::load(dir)?;
        let (path, config) = files::read(dir, &mut special)?;
        files::at_path(&path, Self::from_config(config, special))
    }

    pub fn from_gguf(gguf: &Gguf<'_>) -> Result<Self> {
        let (config, special) = gguf.to_config()?;
        Self::from_config(config, special)
    }

    fn from_config(mut config: Value, special: SpecialTokens) -> Result<Self> {
        let bad = |what: String| Error::new(Code::InvalidArgument, what);
        vocab::lower_prefix_space(&mut config);
        tokenizers::canonicalize_value(&mut config).map_err(|e| bad(e.to_string()))?;
        let kind = config.pointer("/model/type").and_then(Value::as_str);
        if !kind.is_some_and(|kind| MODELS.contains(&kind)) {
            return Err(bad(format!(
                "model type {} is not one of {}",
                kind.unwrap_or("(none)"),
                MODELS.join(", ")
            )));
        }
        let n_ids = count_ids(&config);
        if n_ids == 0 || n_ids > MAX_IDS {
            return Err(bad(format!(
                "{n_ids} token ids; between 1 and {MAX_IDS} are supported"
            )));
        }
        let pipeline = build_pipeline(&config)?;
        let vocab = take_vocab(&mut config);
        let normalized_special = normalized_special(&config);
        drop(config);

        let added = pipeline.get_added_vocabulary().get_added_tokens_decoder();
        let largest = vocab.values().chain(added.keys()).max();
        let n_ids = largest.map_or(0, |&id| u64::from(id) + 1);
        if n_ids == 0 || n_ids > MAX_IDS {
            return Err(bad(format!(
                "{n_ids} token ids; between 1 and {MAX_IDS} are supported"
            )));
        }
        let pieces = Pieces::new(&pipeline, n_ids as u32)?;
        let mut tokenizer = Self {
            pieces,
            vocab,
            special,
            prefix: Vec::new(),
            suffix: Vec::new(),
            normalized_special,
            model_special: Vec::new(),
            pipeline,
        };
        tokenizer.model_special = tokenizer.find_model_special()?;
        tokenizer.read_template()?;
        let media = tokenizer.special.of_other_media();
        for id in media
            .filter_map(|token| tokenizer.id(token))
            .collect::<Vec<_>>()
        {
            tokenizer.pieces.mark_other_media(id);
        }
        Ok(tokenizer)
    }

    /// Finds the tokens that the post-processor puts around a text. Then applies the checkpoint's
    /// add_bos_token and add_eos_token, which override tokenizer.json as in transformers.
    fn read_template(&mut self) -> Result<()> {
        let bare = self.run("a", &options(false, false))?;
        let full = self.run("a", &options(false, true))?;
        let n_extra = full.len().saturating_sub(bare.len());
        let begin = (0..=n_extra)
            .find(|&at| full[at..].starts_with(&bare))
            .ok_or_else(|| {
                Error::new(
                    Code::InvalidArgument,
                    "the post_processor changes the tokens of the text itself",
                )
            })?;
        self.prefix = full[..begin].to_vec();
        self.suffix = full[begin + bare.len()..].to_vec();

        if let (Some(add), Some(bos)) = (self.special.add_bos, self.id(self.role("bos_token"))) {
            self.prefix.retain(|&id| add || id != bos);
            if add && !self.prefix.contains(&bos) {
                self.prefix.insert(0, bos);
            }
        }
        if let (Some(add), Some(eos)) = (self.special.add_eos, self.id(self.role("eos_token"))) {
            self.suffix.retain(|&id| add || id != eos);
            if add && !self.suffix.contains(&eos) {
                self.suffix.push(eos);
            }
        }
        Ok(())
    }

    fn run(&self, text: &str, options: &EncodeOptions) -> Result<Vec<u32>> {
        let mut tokens = Vec::with_capacity(text.len() / 3 + 8);
        self.pipeline
            .encode_into(text, options, &mut tokens)
            .map_err(|e| Error::new(Code::InvalidArgument, format!("cannot encode: {e}")))?;
        Ok(PipelineToken::cast_slice(&tokens).to_vec())
    }

    /// Finds the special tokens that the model produces from their spelling. Skips the unknown
    /// token, which stands for any text without a token.
    fn find_model_special(&self) -> Result<Vec<(String, u32)>> {
        let unk = self.id(self.role("unk_token"));
        let mut found = Vec::new();
        for (id, token) in self
            .pipeline
            .get_added_vocabulary()
            .get_added_tokens_decoder()
        {
            if !token.special || Some(id) == unk {
                continue;
            }
            if self
                .run(&token.content, &options(true, false))?
                .contains(&id)
            {
                found.push((token.content, id));
            }
        }
        found.sort_unstable_by_key(|&(_, id)| id);
        Ok(found)
    }

    /// Spellings of special tokens become special tokens, except inside the ranges `plain`.
    pub fn encode(
        &self,
        text: &str,
        plain: &[Range],
        add_special_tokens: bool,
    ) -> Result<Vec<u32>> {
        rendered::check_ranges(text, plain)?;
        let all_plain = matches!(*plain, [Range { begin: 0, end }] if end == text.len());
        let body = if plain.is_empty() {
            self.run(text, &options(false, false))?
        } else if all_plain && self.model_special.is_empty() {
            self.run(text, &options(true, false))?
        } else {
            self.encode_rendered(text, plain)?
        };
        if !add_special_tokens {
            return Ok(body);
        }
        Ok([&self.prefix[..], &body, &self.suffix].concat())
    }

    fn encode_rendered(&self, text: &str, plain: &[Range]) -> Result<Vec<u32>> {
        // Fast path for nearly every text: nothing in the ranges looks special, so the library does
        // all the work.
        if self.normalized_special.is_empty()
            && self.model_special.is_empty()
            && !rendered::hides_special(&self.pipeline, text, plain)
        {
            return self.run(text, &options(false, false));
        }
        let specials = rendered::Specials {
            normalized: &self.normalized_special,
            of_model: &self.model_special,
        };
        rendered::encode(&self.pipeline, specials, text, plain)
    }

    pub fn decode(&self, ids: &[u32], skip_special_tokens: bool) -> Result<String> {
        self.pipeline
            .decode(ids, skip_special_tokens)
            .map_err(|e| Error::new(Code::InvalidArgument, format!("cannot decode: {e}")))
    }

    pub fn pieces(&self) -> &Pieces {
        &self.pieces
    }

    /// The token that has this role, or "" if the checkpoint names none.
    pub fn role(&self, role: &str) -> &str {
        self.special.roles.get(role).map_or("", String::as_str)
    }

    pub fn id(&self, piece: &str) -> Option<u32> {
        self.pipeline
            .get_added_vocabulary()
            .token_to_id(piece)
            .or_else(|| self.vocab.get(piece).copied())
    }
}

/// Largest id of model and added tokens, plus 1. The library allocates tables of that size.
fn count_ids(config: &Value) -> u64 {
    let of_model = match config.pointer("/model/vocab") {
        Some(Value::Object(entries)) => entries
            .values()
            .map(|id| id.as_u64().map_or(u64::MAX, |id| id.saturating_add(1)))
            .max(),
        Some(Value::Array(entries)) => Some(entries.len() as u64),
        _ => None,
    };
    let added = config.get("added_tokens").and_then(Value::as_array);
    let ids = added
        .into_iter()
        .flatten()
        .filter_map(|t| t.get("id")?.as_u64());
    let of_added = ids.map(|id| id.saturating_add(1)).max();
    of_model.max(of_added).unwrap_or(0)
}

/// Takes the model's tokens by name out of the configuration without copying.
fn take_vocab(config: &mut Value) -> HashMap<String, u32> {
    match config.pointer_mut("/model/vocab").map(Value::take) {
        Some(Value::Object(entries)) => entries
            .into_iter()
            .filter_map(|(token, id)| Some((token, u32::try_from(id.as_u64()?).ok()?)))
            .collect(),
        // Unigram: [token, score] pairs in id order.
        Some(Value::Array(entries)) => entries
            .into_iter()
            .zip(0u32..)
            .filter_map(|(mut entry, id)| match entry.get_mut(0)?.take() {
                Value::String(token) => Some((token, id)),
                _ => None,
            })
            .collect(),
        _ => HashMap::new(),
    }
}

fn normalized_special(config: &Value) -> Vec<(String, u32)> {
    let tokens = config.get("added_tokens").and_then(Value::as_array);
    let spelling = |token: &Value| {
        let flag = |key: &str| token.get(key).and_then(Value::as_bool).unwrap_or(false);
        let content = token.get("content")?.as_str().filter(|c| !c.is_empty())?;
        let id = u32::try_from(token.get("id")?.as_u64()?).ok()?;
        (flag("special") && flag("normalized")).then(|| (content.to_string(), id))
    };
    tokens.into_iter().flatten().filter_map(spelling).collect()
}
