//! The small JSON files beside a checkpoint's tokenizer.

use std::collections::BTreeMap;
use std::fs;
use std::io::ErrorKind;
use std::path::Path;

use serde_json::Value;

use crate::error::{Code, Error, Result};

/// The text of a file, or `None` where there is none.
pub fn read_optional(path: &Path) -> Result<Option<String>> {
    match fs::read_to_string(path) {
        Ok(text) => Ok(Some(text)),
        Err(e) if e.kind() == ErrorKind::NotFound => Ok(None),
        Err(e) => Err(Error::new(
            Code::FailedPrecondition,
            format!("cannot read {}: {e}", path.display()),
        )),
    }
}

/// A JSON file, or `None` where there is none.
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

/// What `tokenizer_config.json` and `special_tokens_map.json` say about special tokens.
#[derive(Default)]
pub struct SpecialTokens {
    /// By role, such as "bos_token"; models with images have roles of their own.
    pub roles: BTreeMap<String, String>,
    pub add_bos: Option<bool>,
    pub add_eos: Option<bool>,
    /// SentencePiece: whether a space goes in front of every piece of text or of the first alone.
    pub legacy: Option<bool>,
}

impl SpecialTokens {
    pub fn load(dir: &Path) -> Result<Self> {
        let mut tokens = Self::default();
        if let Some(map) = read_optional_json(&dir.join("special_tokens_map.json"))? {
            tokens.read_roles(&map);
        }
        if let Some(config) = read_optional_json(&dir.join("tokenizer_config.json"))? {
            tokens.read_roles(&config);
            let flag = |key: &str| config.get(key).and_then(Value::as_bool);
            tokens.add_bos = flag("add_bos_token");
            tokens.add_eos = flag("add_eos_token");
            tokens.legacy = flag("legacy");
        }
        Ok(tokens)
    }

    fn read_roles(&mut self, from: &Value) {
        for (role, value) in from.as_object().into_iter().flatten() {
            if !role.ends_with("_token") {
                continue;
            }
            let token = match value {
                // The long form is the library's AddedToken.
                Value::Object(token) => token.get("content").and_then(Value::as_str),
                other => other.as_str(),
            };
            match token {
                Some(token) => self.roles.insert(role.clone(), token.into()),
                None => self.roles.remove(role),
            };
        }
    }
}
