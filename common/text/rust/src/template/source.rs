//! Finds a checkpoint's chat template.

use std::path::Path;

use serde_json::Value;

use crate::checkpoint::{read_optional, read_optional_json};
use crate::error::{Code, Error, Result};

pub struct Sources {
    /// The file's path, for messages.
    pub origin: String,
    pub default: String,
    /// Used instead of `default` if a request has tools.
    pub tool_use: Option<String>,
}

impl Sources {
    pub fn one(origin: impl Into<String>, text: impl Into<String>) -> Self {
        Self {
            origin: origin.into(),
            default: text.into(),
            tool_use: None,
        }
    }

    pub fn load(dir: &Path, override_path: &str) -> Result<Self> {
        if !override_path.is_empty() {
            let text = read_optional(Path::new(override_path))?.ok_or_else(|| {
                Error::new(
                    Code::NotFound,
                    format!("the chat template {override_path} does not exist"),
                )
            })?;
            return Ok(Self::one(override_path, text));
        }
        let path = dir.join("chat_template.jinja");
        if let Some(text) = read_optional(&path)? {
            let tools = dir.join("additional_chat_templates/tool_use.jinja");
            return Ok(Self {
                tool_use: read_optional(&tools)?,
                ..Self::one(path.display().to_string(), text)
            });
        }
        for name in ["chat_template.json", "tokenizer_config.json"] {
            let path = dir.join(name);
            let config = read_optional_json(&path)?.unwrap_or(Value::Null);
            if let Some(sources) = Self::from_config(&path.display().to_string(), &config)? {
                return Ok(sources);
            }
        }
        Err(Error::new(
            Code::NotFound,
            format!(
                "no chat template in {}: it has neither chat_template.jinja nor a chat_template \
                 in chat_template.json or tokenizer_config.json; name a template file to serve \
                 chats",
                dir.display()
            ),
        ))
    }

    fn from_config(origin: &str, config: &Value) -> Result<Option<Self>> {
        let named = match config.get("chat_template") {
            None | Some(Value::Null) => return Ok(None),
            Some(Value::String(text)) => return Ok(Some(Self::one(origin, text))),
            Some(Value::Array(named)) => named,
            Some(_) => return Err(bad(origin, "is neither a string nor a list")),
        };
        let find = |name: &str| {
            let entry = named
                .iter()
                .find(|e| e.get("name").is_some_and(|n| n == name))?;
            Some(entry.get("template")?.as_str()?.to_string())
        };
        let default = find("default").ok_or_else(|| bad(origin, "has no entry \"default\""))?;
        Ok(Some(Self {
            tool_use: find("tool_use"),
            ..Self::one(origin, default)
        }))
    }
}

fn bad(origin: &str, what: &str) -> Error {
    Error::new(
        Code::InvalidArgument,
        format!("{origin}: chat_template {what}"),
    )
}

/// Replaces `{% generation %}` by a block of `if`. The tag marks model output for training and has
/// no effect on the text.
pub fn without_generation_tags(source: &str) -> String {
    let mut out = String::with_capacity(source.len());
    let mut rest = source;
    while let Some(begin) = rest.find("{%") {
        // "{%}" opens a tag but does not close it.
        let Some(n_bytes) = rest[begin + 2..].find("%}").map(|at| at + 4) else {
            break;
        };
        let tag = &rest[begin..begin + n_bytes];
        let word = tag[2..n_bytes - 2].trim_matches(['-', '+']).trim();
        out.push_str(&rest[..begin]);
        match word {
            "generation" => out.push_str(&tag.replacen(word, "if true", 1)),
            "endgeneration" => out.push_str(&tag.replacen(word, "endif", 1)),
            _ => out.push_str(tag),
        }
        rest = &rest[begin + n_bytes..];
    }
    out + rest
}
