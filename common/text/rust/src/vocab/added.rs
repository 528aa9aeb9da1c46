//! Tokens that a checkpoint adds to its model's vocabulary or marks as special in it.

use std::collections::HashMap;

use serde_json::{json, Value};

use crate::error::{Code, Error, Result};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AddedToken {
    /// The declared id. `None`: the next free id.
    pub id: Option<u32>,
    pub content: String,
    pub special: bool,
    pub normalized: bool,
    pub lstrip: bool,
    pub rstrip: bool,
    pub single_word: bool,
}

impl AddedToken {
    pub fn new(id: Option<u32>, content: impl Into<String>, special: bool) -> Self {
        Self {
            id,
            content: content.into(),
            special,
            normalized: false,
            lstrip: false,
            rstrip: false,
            single_word: false,
        }
    }

    /// Reads an entry of added_tokens_decoder, or a role in its long form.
    pub fn from_json(id: Option<u32>, value: &Value) -> Option<Self> {
        let flag = |key: &str| value.get(key).and_then(Value::as_bool);
        let special = flag("special").unwrap_or(false);
        Some(Self {
            id,
            content: value.get("content")?.as_str()?.to_string(),
            special,
            normalized: flag("normalized").unwrap_or(!special),
            lstrip: flag("lstrip").unwrap_or(false),
            rstrip: flag("rstrip").unwrap_or(false),
            single_word: flag("single_word").unwrap_or(false),
        })
    }

    fn to_json(&self, id: u32) -> Value {
        json!({
            "id": id, "content": self.content, "single_word": self.single_word,
            "lstrip": self.lstrip, "rstrip": self.rstrip, "normalized": self.normalized,
            "special": self.special,
        })
    }
}

/// Returns the added_tokens of a tokenizer.json. If several `tokens` have the same content, the
/// first wins. The library numbers tokens outside the vocabulary from `vocab.len()` on, so a
/// declared id that differs is an error.
pub fn place(tokens: &[AddedToken], vocab: &HashMap<&str, u32>) -> Result<Value> {
    let mut first: HashMap<&str, &AddedToken> = HashMap::new();
    let mut order: Vec<&AddedToken> = Vec::new();
    for token in tokens.iter().filter(|t| !t.content.is_empty()) {
        first.entry(&token.content).or_insert_with(|| {
            order.push(token);
            token
        });
    }
    // Tokens without an id come last and keep their order, because the sort is stable.
    let known = |t: &AddedToken| vocab.get(t.content.as_str()).copied();
    order.sort_by_key(|t| t.id.or(known(t)).map_or(u64::MAX, u64::from));
    let mut next = vocab.len() as u32;
    let mut placed = Vec::with_capacity(order.len());
    for token in order {
        let id = known(token).unwrap_or_else(|| {
            next += 1;
            next - 1
        });
        if token.id.is_some_and(|declared| declared != id) {
            return Err(Error::new(
                Code::InvalidArgument,
                format!(
                    "the added token \"{}\" is declared as id {}, but is {id} by the vocabulary \
                     and the added tokens before it: the files are of different checkpoints, or \
                     one is missing",
                    token.content,
                    token.id.unwrap_or_default()
                ),
            ));
        }
        placed.push(token.to_json(id));
    }
    Ok(Value::Array(placed))
}
