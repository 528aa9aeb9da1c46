//! Precomputes the text that each token contributes, so that a token stream can be detokenized
//! without the library. `../token_stream.h` reads these tables.

use tokenizers::decoders::DecoderRuntime;
use tokenizers::pipeline::{PipelineModel, PipelineTokenizer};
use tokenizers::utils::byte_level::char_to_byte;
use tokenizers::Decoder as _;

use crate::error::{Code, Error, Result};

/// Values of `SC_TEXT_DECODE_*`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub enum Decode {
    Bytes = 0,
    Text = 1,
    Whole = 2,
}

const KNOWN: u8 = 1;
const SPECIAL: u8 = 2;
const BYTE: u8 = 4;
const OTHER_MEDIA: u8 = 8;

/// Byte strings, stored one after the other.
#[derive(Default)]
pub struct Table {
    pub offsets: Vec<u32>,
    pub bytes: Vec<u8>,
}

impl Table {
    fn new() -> Self {
        Self {
            offsets: vec![0],
            bytes: Vec::new(),
        }
    }

    fn push(&mut self, bytes: &[u8]) -> Result<()> {
        self.bytes.extend_from_slice(bytes);
        let end = u32::try_from(self.bytes.len()).map_err(|_| {
            Error::new(
                Code::InvalidArgument,
                "the tokens of the tokenizer take more than 4 GB",
            )
        })?;
        self.offsets.push(end);
        Ok(())
    }
}

pub struct Pieces {
    pub decode: Decode,
    pub flags: Vec<u8>,
    pub all: Table,
    pub first: Option<Table>,
    pub n_strip: usize,
    pub strip_byte: u8,
}

/// A decoder, split into steps that a stream can follow.
struct Plan {
    decode: Decode,
    /// Steps that depend only on one token and on whether it is the first.
    per_token: Vec<DecoderRuntime>,
    byte_fallback: bool,
    n_strip: usize,
    strip_byte: u8,
}

impl Plan {
    fn of(decode: Decode) -> Self {
        Self {
            decode,
            per_token: Vec::new(),
            byte_fallback: false,
            n_strip: 0,
            strip_byte: b' ',
        }
    }

    fn new(tokenizer: &PipelineTokenizer) -> Self {
        if is_byte_level(tokenizer) {
            return Self::of(Decode::Bytes);
        }
        let Some(decoder) = tokenizer.get_decoder() else {
            return Self::of(Decode::Text);
        };
        let mut steps = Vec::new();
        flatten(decoder, &mut steps);
        if let [DecoderRuntime::ByteLevel(_)] = steps[..] {
            return Self::of(Decode::Bytes);
        }
        Self::from_steps(&steps).unwrap_or_else(|| Self::of(Decode::Whole))
    }

    /// The decoder shape of SentencePiece: changes to single tokens, then byte fallback, then all
    /// tokens are joined and the first space is removed. `None` for any other shape.
    fn from_steps(steps: &[&DecoderRuntime]) -> Option<Self> {
        use DecoderRuntime::{ByteFallback, Fuse, Metaspace, Replace, Strip, WordPiece};
        let mut plan = Self::of(Decode::Text);
        let mut rest = steps;
        while let [step @ (Replace(_) | Metaspace(_) | WordPiece(_)), tail @ ..] = rest {
            plan.per_token.push((*step).clone());
            rest = tail;
        }
        if let [ByteFallback(_), tail @ ..] = rest {
            plan.byte_fallback = true;
            rest = tail;
        }
        if let [Fuse(_), tail @ ..] = rest {
            rest = tail;
            if let [Strip(strip), tail @ ..] = rest {
                if strip.stop != 0 || !strip.content.is_ascii() {
                    return None;
                }
                plan.n_strip = strip.start;
                plan.strip_byte = strip.content as u8;
                rest = tail;
            }
        }
        rest.is_empty().then_some(plan)
    }

    /// The text of a token in first place (`first`) or in any other place.
    fn apply(&self, token: &str, first: bool, joined_by_space: bool) -> Result<String> {
        let mut chain = vec![token.to_string()];
        if !first {
            chain.insert(0, "x".to_string());
        }
        for step in &self.per_token {
            chain = step
                .decode_chain(chain)
                .map_err(|e| Error::new(Code::InvalidArgument, format!("decoder: {e}")))?;
        }
        let text = chain.pop().unwrap_or_default();
        Ok(if joined_by_space && !first {
            format!(" {text}")
        } else {
            text
        })
    }
}

fn flatten<'a>(decoder: &'a DecoderRuntime, out: &mut Vec<&'a DecoderRuntime>) {
    match decoder {
        DecoderRuntime::Sequence(members) => members.iter().for_each(|m| flatten(m, out)),
        single => out.push(single),
    }
}

fn is_byte_level(tokenizer: &PipelineTokenizer) -> bool {
    matches!(tokenizer.get_model(), PipelineModel::BPE(bpe) if bpe.is_byte_level())
}

/// The bytes of a token of a byte-level vocabulary. Text outside the alphabet stays unchanged.
fn byte_level_bytes(token: &str) -> Vec<u8> {
    let bytes: Option<Vec<u8>> = token.chars().map(char_to_byte).collect();
    bytes.unwrap_or_else(|| token.as_bytes().to_vec())
}

/// The byte that a token such as `<0xE2>` stands for, parsed like the library's ByteFallback.
fn fallback_byte(token: &str) -> Option<u8> {
    let digits = token.strip_prefix("<0x")?.strip_suffix('>')?;
    (token.len() == 6)
        .then(|| u8::from_str_radix(digits, 16).ok())
        .flatten()
}

impl Pieces {
    /// `n_ids`: the largest id + 1.
    pub fn new(tokenizer: &PipelineTokenizer, n_ids: u32) -> Result<Self> {
        let mut plan = Plan::new(tokenizer);
        let joined_by_space = plan.decode == Decode::Text && tokenizer.get_decoder().is_none();
        let mut flags = Vec::with_capacity(n_ids as usize);
        let mut all = Table::new();
        let mut first = Table::new();
        for id in 0..n_ids {
            let Some(token) = tokenizer.decode_tokens(&[id], false).pop() else {
                flags.push(0);
                all.push(b"")?;
                first.push(b"")?;
                continue;
            };
            let mut flag = KNOWN;
            if tokenizer.decode_tokens(&[id], true).is_empty() {
                flag |= SPECIAL;
            }
            match plan.decode {
                Decode::Bytes => {
                    let added = is_byte_level(tokenizer)
                        && tokenizer
                            .get_added_vocabulary()
                            .simple_id_to_token(id)
                            .is_some();
                    let bytes = if added {
                        token.into_bytes()
                    } else {
                        byte_level_bytes(&token)
                    };
                    all.push(&bytes)?;
                    first.push(&bytes)?;
                }
                Decode::Text | Decode::Whole => {
                    let rest = plan.apply(&token, false, joined_by_space)?;
                    let opening = plan.apply(&token, true, joined_by_space)?;
                    let byte = fallback_byte(&rest);
                    if plan.byte_fallback && byte != fallback_byte(&opening) {
                        plan.decode = Decode::Whole; // a byte in one position and text in another
                    }
                    match byte.filter(|_| plan.byte_fallback) {
                        Some(byte) => {
                            flag |= BYTE;
                            all.push(&[byte])?;
                            first.push(&[byte])?;
                        }
                        None => {
                            all.push(rest.as_bytes())?;
                            first.push(opening.as_bytes())?;
                        }
                    }
                }
            }
            flags.push(flag);
        }
        let same = first.offsets == all.offsets && first.bytes == all.bytes;
        Ok(Self {
            decode: plan.decode,
            flags,
            all,
            first: (!same).then_some(first),
            n_strip: plan.n_strip,
            strip_byte: plan.strip_byte,
        })
    }

    /// Marks a token that stands for an image, audio or other media.
    pub fn mark_other_media(&mut self, id: u32) {
        if let Some(flags) = self.flags.get_mut(id as usize) {
            *flags |= OTHER_MEDIA;
        }
    }
}
