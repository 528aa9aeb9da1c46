//! The small JSON files next to a checkpoint's tokenizer.

use std::collections::{BTreeMap, HashSet};
use std::fs;
use std::io::ErrorKind;
use std::path::Path;

use serde_json::Value;

use crate::error::{Code, Error, Result};
use crate::vocab::AddedToken;

/// Real tokenizer files have at most some ten megabytes. A larger file is something else.
const MAX_FILE_BYTES: u64 = 512 << 20;

fn unreadable(path: &Path, what: impl std::fmt::Display) -> Error {
    Error::new(
        Code::FailedPrecondition,
        format!("cannot read {}: {what}", path.display()),
    )
}

/// The bytes of a file, or `None` if it does not exist.
pub fn read_optional_bytes(path: &Path) -> Result<Option<Vec<u8>>> {
    match fs::metadata(path) {
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(unreadable(path, e)),
        Ok(of_file) if of_file.len() > MAX_FILE_BYTES => {
            let n_bytes = of_file.len();
            return Err(unreadable(
                path,
                format!("{n_bytes} bytes; at most {MAX_FILE_BYTES} are supported"),
            ));
        }
        Ok(_) => {}
    }
    fs::read(path).map(Some).map_err(|e| unreadable(path, e))
}

/// The text of a file, or `None` if it does not exist.
pub fn read_optional(path: &Path) -> Result<Option<String>> {
    let Some(bytes) = read_optional_bytes(path)? else {
        return Ok(None);
    };
    let text = String::from_utf8(bytes).map_err(|e| {
        let at = e.utf8_error().valid_up_to();
        Error::new(
            Code::InvalidArgument,
            format!("{} is not UTF-8 at byte {at}", path.display()),
        )
    })?;
    Ok(Some(text))
}

/// A JSON file, or `None` if it does not exist.
pub fn read_optional_json(path: &Path) -> Result<Option<Value>> {
    let Some(text) = read_optional(path)? else {
        return Ok(None);
    };
    serde_json::from_str(&text).map(Some).map_err(|e| {
        Error::new(
            Code::InvalidArgument,
            format!("{} is not valid JSON: {e}", path.display()),
        )
    })
}

/// Roles of a text model's tokens. Other roles, such as "image_token", belong to other media.
const TEXT_ROLES: [&str; 7] = [
    "bos_token",
    "eos_token",
    "unk_token",
    "sep_token",
    "pad_token",
    "cls_token",
    "mask_token",
];

/// Contents of `tokenizer_config.json`, `special_tokens_map.json` and `added_tokens.json`: special
/// tokens and the preparation of text.
#[derive(Default)]
pub struct SpecialTokens {
    /// By role, such as "bos_token". Multimodal models have further roles.
    pub roles: BTreeMap<String, String>,
    pub add_bos: Option<bool>,
    pub add_eos: Option<bool>,
    /// SentencePiece: true puts a space before every piece of text, false only before the first.
    pub legacy: Option<bool>,
    pub add_prefix_space: Option<bool>,
    /// tokenizer_class, or "" if absent.
    pub class: String,
    /// Added tokens with a declared id.
    pub added: Vec<AddedToken>,
    /// Special tokens that have neither a role nor an id.
    pub extra: Vec<String>,
}

impl SpecialTokens {
    pub fn load(dir: &Path) -> Result<Self> {
        let mut tokens = Self::default();
        if let Some(map) = read_optional_json(&dir.join("special_tokens_map.json"))? {
            tokens.read_roles(&map);
        }
        let config = read_optional_json(&dir.join("tokenizer_config.json"))?;
        if let Some(config) = &config {
            tokens.read_roles(config);
            let flag = |key: &str| config.get(key).and_then(Value::as_bool);
            tokens.add_bos = flag("add_bos_token");
            tokens.add_eos = flag("add_eos_token");
            tokens.legacy = flag("legacy");
            tokens.add_prefix_space = flag("add_prefix_space");
            if let Some(class) = config.get("tokenizer_class").and_then(Value::as_str) {
                tokens.class = class.to_string();
            }
        }
        let declared = config.as_ref().and_then(|c| c.get("added_tokens_decoder"));
        match declared.and_then(Value::as_object) {
            Some(declared) => {
                let token = |(id, value): (&String, &Value)| {
                    AddedToken::from_json(Some(id.parse().ok()?), value)
                };
                tokens.added = declared.iter().filter_map(token).collect();
            }
            None => tokens.read_added_tokens(dir)?,
        }
        Ok(tokens)
    }

    /// Reads the older file, which maps content to id.
    fn read_added_tokens(&mut self, dir: &Path) -> Result<()> {
        let Some(file) = read_optional_json(&dir.join("added_tokens.json"))? else {
            return Ok(());
        };
        let special: HashSet<&String> = self.roles.values().chain(&self.extra).collect();
        for (content, id) in file.as_object().into_iter().flatten() {
            let Some(id) = id.as_u64().and_then(|id| u32::try_from(id).ok()) else {
                continue;
            };
            let mut token = AddedToken::new(Some(id), content, special.contains(content));
            token.normalized = !token.special;
            self.added.push(token);
        }
        Ok(())
    }

    fn read_roles(&mut self, from: &Value) {
        let text = |value: &Value| match value {
            // The long form is a serialized AddedToken of the tokenizers library.
            Value::Object(token) => token.get("content")?.as_str().map(str::to_string),
            other => other.as_str().map(str::to_string),
        };
        for (role, value) in from.as_object().into_iter().flatten() {
            if role == "additional_special_tokens" || role == "extra_special_tokens" {
                match value {
                    Value::Array(tokens) => self.extra.extend(tokens.iter().filter_map(text)),
                    Value::Object(named) => {
                        for (role, value) in named {
                            self.roles.extend(text(value).map(|t| (role.clone(), t)));
                        }
                    }
                    _ => {}
                }
            }
            if !role.ends_with("_token") {
                continue;
            }
            match text(value) {
                Some(token) => self.roles.insert(role.clone(), token),
                None => self.roles.remove(role),
            };
        }
    }

    /// Assigns a role unless the files already assign it.
    pub fn default_role(&mut self, role: &str, token: &str) {
        self.roles
            .entry(role.to_string())
            .or_insert_with(|| token.to_string());
    }

    /// Declared tokens first, then tokens with a role, then other special tokens.
    pub fn all_added(&self) -> Vec<AddedToken> {
        let special = |content: &String| AddedToken::new(None, content, true);
        let mut all = self.added.clone();
        let roles: HashSet<&String> = self.roles.values().collect();
        for token in &mut all {
            token.special |= roles.contains(&token.content);
        }
        // Tokens that are new to the vocabulary get their ids in this order.
        let order = |role: &&String| {
            TEXT_ROLES
                .iter()
                .position(|r| r == role)
                .unwrap_or(usize::MAX)
        };
        let mut names: Vec<&String> = self.roles.keys().collect();
        names.sort_by_key(order);
        all.extend(names.into_iter().map(|role| special(&self.roles[role])));
        all.extend(self.extra.iter().map(special));
        all
    }

    /// Tokens that stand for images, audio or other media.
    pub fn of_other_media(&self) -> impl Iterator<Item = &str> {
        let of_text = |role: &str| TEXT_ROLES.contains(&role);
        let others = self.roles.iter().filter(move |(role, _)| !of_text(role));
        others.map(|(_, token)| token.as_str())
    }
}
