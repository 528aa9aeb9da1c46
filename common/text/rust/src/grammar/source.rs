//! Translates the kinds of grammar that a request may name into llguidance grammars.

use llguidance::api::{GrammarWithLexer, TopLevelGrammar};
use llguidance::toktrie::TokTrie;
use llguidance::{regex_to_lark, JsonCompileOptions};
use serde_json::{json, Value};

use crate::error::{Code, Error, Result};

/// Values of `SC_GRAMMAR_*`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    JsonSchema,
    JsonObject,
    Regex,
    Choice,
    Lark,
    /// `{"calls": lark, "form": {"kind": code, "text": text}}`: accepts either of the two.
    CallsOrForm,
}

impl Kind {
    pub fn from_code(code: i32) -> Result<Self> {
        Ok(match code {
            0 => Self::JsonSchema,
            1 => Self::JsonObject,
            2 => Self::Regex,
            3 => Self::Choice,
            4 => Self::Lark,
            5 => Self::CallsOrForm,
            other => return Err(invalid(format!("{other} is not a kind of grammar"))),
        })
    }
}

#[derive(Clone, Copy)]
pub struct Source<'a> {
    pub kind: Kind,
    pub text: &'a str,
    /// JSON kinds only: allows whitespace. If false, documents are compact: `{"a":1,"b":[2,3]}`.
    pub any_whitespace: bool,
    /// The grammar applies to the text after this marker, which is a text or the name of a special
    /// token. Any text may precede it. Empty: the grammar applies to the whole text.
    pub begins_after: &'a str,
}

const BODY: &str = "body";

/// Whitespace between two JSON tokens: a space, or a line break and indentation. Bounded, because
/// otherwise a model could write whitespace without end.
const WHITESPACE: &str = r" |\r?\n[ \t]{0,64}";

/// After this text, an answer in the Harmony format begins. Messages of reasoning may precede it,
/// whose marks are special tokens in most vocabularies.
const HARMONY_FINAL: &str = "<|channel|>final<|message|>";

fn invalid(what: impl Into<String>) -> Error {
    Error::new(Code::InvalidArgument, what)
}

fn parse<T: serde::de::DeserializeOwned>(text: &str, what: &str) -> Result<T> {
    serde_json::from_str(text).map_err(|e| invalid(format!("{what}: {e}")))
}

impl Source<'_> {
    pub fn to_grammar(self, vocabulary: &TokTrie) -> Result<TopLevelGrammar> {
        let mut bodies = self.bodies()?;
        if self.begins_after.is_empty() && bodies.len() == 1 {
            return Ok(TopLevelGrammar::from_grammar(bodies.remove(0)));
        }
        let mut names = Vec::new();
        for (i, body) in bodies.iter_mut().enumerate() {
            let name = format!("{BODY}{i}");
            names.push(format!("@{name}"));
            body.name = Some(name);
        }
        let rules = if self.begins_after == HARMONY_FINAL {
            harmony_head(vocabulary, &names)
        } else {
            self.head(vocabulary)? + &format!("{BODY}: {}\n", names.join(" | "))
        };
        bodies.insert(0, GrammarWithLexer::from_lark(rules));
        Ok(TopLevelGrammar {
            grammars: bodies,
            max_tokens: None,
        })
    }

    /// Rules from `start` to `BODY`.
    fn head(self, vocabulary: &TokTrie) -> Result<String> {
        if self.begins_after.is_empty() {
            return Ok(format!("start: {BODY}\n"));
        }
        let marker =
            serde_json::to_string(self.begins_after).map_err(|e| invalid(e.to_string()))?;
        let rules = match vocabulary.get_special_token(self.begins_after) {
            Some(id) => format!("start: before <[{id}]> blanks {BODY}\nbefore: /(?s:.*)/\n"),
            None => format!("start: before blanks {BODY}\nbefore[suffix={marker}]: /(?s:.*)/\n"),
        };
        Ok(rules + "blanks: /[ \\n]{0,4}/\n")
    }

    /// The alternative grammars of the text.
    fn bodies(self) -> Result<Vec<GrammarWithLexer>> {
        if self.kind != Kind::CallsOrForm {
            return Ok(vec![self.body()?]);
        }
        let parts: Value = parse(self.text, "not valid JSON")?;
        let text = |value: &Value| {
            let text = value.as_str().map(str::to_string);
            text.ok_or_else(|| invalid("calls and form must be strings"))
        };
        let form = text(&parts["form"]["text"])?;
        let code = parts["form"]["kind"].as_i64().unwrap_or(-1);
        let kind = Kind::from_code(i32::try_from(code).unwrap_or(-1))?;
        if kind == Kind::CallsOrForm {
            return Err(invalid("a form cannot itself contain tool calls"));
        }
        let form = Source {
            kind,
            text: &form,
            ..self
        };
        let calls = GrammarWithLexer::from_lark(text(&parts["calls"])?);
        Ok(vec![calls, form.body()?])
    }

    fn body(self) -> Result<GrammarWithLexer> {
        Ok(match self.kind {
            Kind::JsonSchema => self.json(parse(self.text, "not valid JSON")?)?,
            Kind::JsonObject => self.json(json!({"type": "object"}))?,
            Kind::Regex => GrammarWithLexer::from_lark(format!("start: /{}/", regex(self.text))),
            Kind::Choice => choice(&parse::<Vec<String>>(
                self.text,
                "not a JSON array of strings",
            )?)?,
            Kind::Lark => GrammarWithLexer::from_lark(self.text.to_string()),
            Kind::CallsOrForm => return Err(invalid("calls with a form are two grammars")),
        })
    }

    fn json(self, schema: Value) -> Result<GrammarWithLexer> {
        let mut schema = match schema {
            Value::Bool(true) => json!({}),
            Value::Bool(false) => return Err(invalid("the schema `false` allows nothing")),
            schema @ Value::Object(_) => schema,
            _ => return Err(invalid("a schema must be an object or a boolean")),
        };
        // Overwrites options such as "lenient" that a request could put into the schema.
        JsonCompileOptions {
            whitespace_flexible: false,
            whitespace_pattern: self.any_whitespace.then(|| WHITESPACE.to_string()),
            ..JsonCompileOptions::default()
        }
        .apply_to(&mut schema);
        Ok(GrammarWithLexer::from_json_schema(schema))
    }
}

/// Rules for messages of reasoning, and for the last of `bodies` in the channel "final" behind them.
/// A body in front of it is calls, which bring their own messages.
fn harmony_head(vocabulary: &TokTrie, bodies: &[String]) -> String {
    let mark = |name: &str| match vocabulary.get_special_token(name) {
        Some(id) => format!("<[{id}]>"),
        None => format!("\"{name}\""),
    };
    let (channel, message, end) = (mark("<|channel|>"), mark("<|message|>"), "<|end|>");
    let (text, behind) = match vocabulary.get_special_token(end) {
        Some(id) => ("text".to_string(), format!("<[{id}]>")),
        None => (format!("text[suffix=\"{end}\"]"), String::new()),
    };
    let calls: String = bodies
        .iter()
        .rev()
        .skip(1)
        .map(|body| format!(" | {body}"))
        .collect();
    let form = bodies.last().map_or("", String::as_str);
    format!(
        "start: thought* {channel} \"final\" {message} {form}{calls}\n\
         thought: {channel} (\"analysis\" | \"commentary\") {message} text {behind} {} \"assistant\"\n\
         {text}: /(?s:.*)/\n",
        mark("<|start|>")
    )
}

/// The whole text must match, so anchors at the ends of an alternative are redundant. They are
/// removed because the library does not support them.
fn regex(text: &str) -> String {
    let unanchored: Vec<&str> = alternatives(text).into_iter().map(unanchored).collect();
    regex_to_lark(&unanchored.join("|"), "")
}

/// Splits a regex at each `|` outside all brackets.
fn alternatives(text: &str) -> Vec<&str> {
    let (mut parts, mut begin, mut depth) = (Vec::new(), 0, 0usize);
    let (mut escaped, mut in_class) = (false, false);
    for (at, c) in text.char_indices() {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            ']' => in_class = false,
            _ if in_class => {}
            '[' => in_class = true,
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            '|' if depth == 0 => {
                parts.push(&text[begin..at]);
                begin = at + 1;
            }
            _ => {}
        }
    }
    parts.push(&text[begin..]);
    parts
}

fn unanchored(text: &str) -> &str {
    let text = text.strip_prefix('^').unwrap_or(text);
    match text.strip_suffix('$') {
        // An escaped dollar sign has an odd number of backslashes before it.
        Some(rest) if (rest.len() - rest.trim_end_matches('\\').len()) % 2 == 0 => rest,
        _ => text,
    }
}

fn choice(texts: &[String]) -> Result<GrammarWithLexer> {
    if texts.is_empty() {
        return Err(invalid("a choice needs at least one text"));
    }
    let quoted = |text: &String| serde_json::to_string(text).map_err(|e| invalid(e.to_string()));
    let alternatives: Vec<String> = texts.iter().map(quoted).collect::<Result<_>>()?;
    // A terminal is compiled into one regex, however many texts it has.
    Ok(GrammarWithLexer::from_lark(format!(
        "start: TEXT\nTEXT: {}",
        alternatives.join(" | ")
    )))
}
