//! vocab.json and merges.txt: GPT-2's files, which OPT and Qwen2 also use.

use serde_json::Value;

use super::byte_level::{split_merge, ByteLevel, Words, QWEN2};
use crate::checkpoint::SpecialTokens;
use crate::error::{Code, Error, Result};

const QWEN2_CLASS: &str = "Qwen2Tokenizer";
/// Tokenizer classes of transformers that split text like GPT-2.
const GPT2_CLASSES: [&str; 6] = [
    "GPT2Tokenizer",
    "GPTNeoXTokenizer",
    "CodeGenTokenizer",
    "OPTTokenizer",
    "PreTrainedTokenizer",
    "TokenizersBackend",
];

/// Adds the class's default roles to `special` if the files do not name any.
pub fn from_vocab_and_merges(
    vocab: &Value,
    merges: &str,
    model_type: &str,
    special: &mut SpecialTokens,
) -> Result<Value> {
    let bad = |what: String| Error::new(Code::InvalidArgument, what);
    let class = match special.class.as_str() {
        "" if model_type.starts_with("qwen") => QWEN2_CLASS,
        "" => GPT2_CLASSES[0],
        class => class.strip_suffix("Fast").unwrap_or(class),
    };
    let is_qwen = class == QWEN2_CLASS;
    if !is_qwen && !GPT2_CLASSES.contains(&class) {
        return Err(bad(format!(
            "is supported only for tokenizer_class {}, {QWEN2_CLASS} or none, but \
             tokenizer_config.json says {class}: put the checkpoint's tokenizer.json beside it",
            GPT2_CLASSES[..4].join(", ")
        )));
    }
    let entries = vocab
        .as_object()
        .ok_or_else(|| bad("is not an object of tokens and ids".into()))?;
    let mut tokens = Vec::with_capacity(entries.len());
    for (token, id) in entries {
        let id = id.as_u64().and_then(|id| u32::try_from(id).ok());
        let id = id.ok_or_else(|| bad(format!("the id of \"{token}\" is not a token id")))?;
        tokens.push((token.clone(), id));
    }
    if entries.contains_key("<|endoftext|>") {
        for role in ["unk_token", "eos_token"] {
            special.default_role(role, "<|endoftext|>");
        }
        special.default_role(
            if is_qwen { "pad_token" } else { "bos_token" },
            "<|endoftext|>",
        );
    }
    ByteLevel {
        vocab: tokens,
        merges: read_merges(merges)?,
        words: if is_qwen {
            Words::Pattern(QWEN2)
        } else {
            Words::Gpt2
        },
        nfc: is_qwen,
        ignore_merges: false,
        add_prefix_space: special.add_prefix_space.unwrap_or(false),
        added: special.all_added(),
    }
    .into_config()
}

fn read_merges(text: &str) -> Result<Vec<(String, String)>> {
    let lines = (1..).zip(text.lines());
    lines
        .filter(|(_, line)| !line.starts_with("#version") && !line.is_empty())
        .map(|(number, line)| {
            split_merge(line).ok_or_else(|| {
                Error::new(
                    Code::InvalidArgument,
                    format!("merges.txt, line {number}: \"{line}\" is not two tokens"),
                )
            })
        })
        .collect()
}
