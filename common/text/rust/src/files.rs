//! Selects the files of a checkpoint folder from which its tokenizer is read.

use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::checkpoint::{read_optional, read_optional_bytes, read_optional_json, SpecialTokens};
use crate::error::{Code, Error, Result};
use crate::vocab;

/// In search order. tokenizer.json comes first because it has the most information.
const SOURCES: [&str; 4] = [
    "tokenizer.json",
    "tokenizer.model",
    "tekken.json",
    "vocab.json",
];
/// Files often found next to a tokenizer. Error messages mention them.
const COMPANIONS: [&str; 4] = [
    "merges.txt",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
];

pub fn at_path<T>(path: &Path, result: Result<T>) -> Result<T> {
    result.map_err(|e| Error::new(e.code, format!("{}: {}", path.display(), e.message)))
}

/// Returns the path of the tokenizer file and its content as a tokenizer.json. Adds information
/// that only this file has to `special`.
pub fn read(dir: &Path, special: &mut SpecialTokens) -> Result<(PathBuf, Value)> {
    let path = dir.join(SOURCES[0]);
    if let Some(config) = read_optional_json(&path)? {
        return Ok((path, config));
    }
    let path = dir.join(SOURCES[1]);
    if let Some(bytes) = read_optional_bytes(&path)? {
        let config = at_path(&path, vocab::from_model_file(&bytes, special))?;
        return Ok((path, config));
    }
    let path = dir.join(SOURCES[2]);
    if let Some(file) = read_optional_json(&path)? {
        let config = at_path(&path, vocab::from_tekken(&file, special))?;
        return Ok((path, config));
    }
    let path = dir.join(SOURCES[3]);
    if let Some(file) = read_optional_json(&path)? {
        if let Some(merges) = read_optional(&dir.join("merges.txt"))? {
            let model_type = read_optional_json(&dir.join("config.json"))?
                .and_then(|config| Some(config.get("model_type")?.as_str()?.to_string()))
                .unwrap_or_default();
            let config = vocab::from_vocab_and_merges(&file, &merges, &model_type, special);
            // The problem may be in either file.
            let both = dir.join("vocab.json with merges.txt");
            return Ok((both.clone(), at_path(&both, config)?));
        }
    }
    Err(missing(dir))
}

fn missing(dir: &Path) -> Error {
    let not_found = |what: String| Error::new(Code::NotFound, what);
    if !dir.is_dir() {
        return not_found(format!("the folder {} does not exist", dir.display()));
    }
    let there = |name: &&str| dir.join(name).exists();
    let found: Vec<&str> = SOURCES
        .into_iter()
        .chain(COMPANIONS)
        .filter(there)
        .collect();
    let found = match found.join(", ") {
        names if names.is_empty() => "none of a tokenizer's files".to_string(),
        names if names == "tokenizer_config.json" => format!("{names}, which alone is not enough"),
        names if there(&"vocab.json") => format!("{names}, but vocab.json needs merges.txt"),
        names if there(&"merges.txt") => format!("{names}, but merges.txt needs vocab.json"),
        names => names,
    };
    not_found(format!(
        "no tokenizer in {}: looked for {} or {} with merges.txt; there is {found}. Copy these files \
         from the base model, or save the tokenizer beside the fine-tuned weights \
         (tokenizer.save_pretrained)",
        dir.display(),
        SOURCES[..3].join(", "),
        SOURCES[3],
    ))
}
