//! tekken.json: Mistral's byte-level vocabulary. A token's id is its rank plus the number of
//! special tokens.

use base64::Engine as _;
use serde_json::Value;

use super::added::AddedToken;
use super::byte_level::{spell, ByteLevel, Words};
use super::merges::{self, Splits};
use crate::checkpoint::SpecialTokens;
use crate::error::{Code, Error, Result};

fn bad(what: impl Into<String>) -> Error {
    Error::new(Code::InvalidArgument, what)
}

const ROLES: [(&str, &str); 4] = [
    ("bos_token", "<s>"),
    ("eos_token", "</s>"),
    ("pad_token", "<pad>"),
    ("unk_token", "<unk>"),
];

pub fn from_tekken(file: &Value, special: &mut SpecialTokens) -> Result<Value> {
    let config = file.get("config").unwrap_or(&Value::Null);
    let pattern = config
        .get("pattern")
        .and_then(Value::as_str)
        .ok_or_else(|| bad("has no config.pattern"))?;
    let size = |key: &str| config.get(key).and_then(Value::as_u64);
    let names = special_names(file, size("default_num_special_tokens"))?;
    let n_special = names.len();
    let entries = file
        .get("vocab")
        .and_then(Value::as_array)
        .ok_or_else(|| bad("has no vocab"))?;
    // The file lists more tokens than the model has.
    let n_kept = match size("default_vocab_size") {
        Some(n_ids) => (n_ids as usize).saturating_sub(n_special),
        None => entries.len(),
    };
    let tokens: Vec<Vec<u8>> = (0..)
        .zip(entries.iter().take(n_kept))
        .map(|(rank, entry)| read_token(rank, entry))
        .collect::<Result<_>>()?;

    let mut pieces: Vec<(&[u8], u32)> = Vec::with_capacity(tokens.len());
    for (token, rank) in tokens.iter().zip(0u32..) {
        pieces.push((token, rank));
    }
    let spelled: Vec<String> = tokens.iter().map(|token| spell(token)).collect();
    let merges = merges::generate(&pieces, Splits::ByRank)?
        .into_iter()
        .map(|(left, right)| {
            (
                spelled[left as usize].clone(),
                spelled[right as usize].clone(),
            )
        })
        .collect();
    let first_id = n_special as u32;
    let vocab: Vec<(String, u32)> = names
        .iter()
        .cloned()
        .zip(0..)
        .chain(spelled.into_iter().zip(first_id..))
        .collect();
    for (role, name) in ROLES {
        if names.iter().any(|known| known == name) {
            special.default_role(role, name);
        }
    }
    special.add_bos.get_or_insert(false);
    let mut added = special.all_added();
    let ids = 0u32..;
    added.extend(
        ids.zip(&names)
            .map(|(id, name)| AddedToken::new(Some(id), name, true)),
    );
    ByteLevel {
        vocab,
        merges,
        words: Words::Pattern(pattern),
        nfc: false,
        ignore_merges: true,
        add_prefix_space: false,
        added,
    }
    .into_config()
}

/// Names of the special tokens by id. Ids that the file does not name get placeholder names.
fn special_names(file: &Value, n_special: Option<u64>) -> Result<Vec<String>> {
    let entries = file
        .get("special_tokens")
        .and_then(Value::as_array)
        .ok_or_else(|| {
            bad(
                "has no special_tokens (the format of 2024): convert it with mistral-common, or \
                 put the checkpoint's tokenizer.json beside it",
            )
        })?;
    let n_special = n_special.unwrap_or(entries.len() as u64);
    if n_special > 1 << 20 || (n_special as usize) < entries.len() {
        return Err(bad(format!(
            "has {} special_tokens, but default_num_special_tokens is {n_special}",
            entries.len()
        )));
    }
    let mut names: Vec<String> = (0..n_special).map(|id| format!("<SPECIAL_{id}>")).collect();
    let mut seen = vec![false; entries.len()];
    for entry in entries {
        let rank = entry.get("rank").and_then(Value::as_u64);
        let name = entry.get("token_str").and_then(Value::as_str);
        let (Some(rank), Some(name)) = (rank, name) else {
            return Err(bad("has a special token without rank or token_str"));
        };
        let slot = seen.get_mut(rank as usize).filter(|seen| !**seen);
        *slot.ok_or_else(|| {
            bad(format!(
                "the ranks of the special tokens do not count from 0: {rank} (\"{name}\")"
            ))
        })? = true;
        names[rank as usize] = name.to_string();
    }
    Ok(names)
}

fn read_token(rank: usize, entry: &Value) -> Result<Vec<u8>> {
    let bytes = entry.get("token_bytes").and_then(Value::as_str);
    bytes
        .and_then(|bytes| base64::engine::general_purpose::STANDARD.decode(bytes).ok())
        .filter(|bytes| !bytes.is_empty())
        .ok_or_else(|| bad(format!("vocab[{rank}] has no token_bytes in base64")))
}
