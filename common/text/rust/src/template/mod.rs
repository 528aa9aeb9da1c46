//! Chat templates: Jinja with transformers' settings.

mod builtins;
mod methods;
mod namespaces;
mod python;
mod source;
mod trace;

use std::collections::BTreeMap;
use std::error::Error as _;
use std::io::{self, Write};
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use minijinja::syntax::SyntaxConfig;
use minijinja::value::Serde;
use minijinja::{Environment, ErrorKind};
use serde_json::{Map, Value};

use crate::abi::Range;
use crate::checkpoint::SpecialTokens;
use crate::error::{Code, Error, Result};
use source::Sources;
use trace::{Follow, Found, Written};

/// Steps allowed per render. Real templates need a few hundred per message. An endless loop stops
/// within a second.
const FUEL: u64 = 10_000_000;
const MAX_OUTPUT_BYTES: usize = 32 << 20;

const DEFAULT: &str = "default";
const TOOL_USE: &str = "tool_use";

pub struct ChatTemplate {
    env: Environment<'static>,
    has_tool_use: bool,
    roles: BTreeMap<String, String>,
    /// String literals in the sources, for `trace`.
    literals: Vec<String>,
    sources: Vec<String>,
}

pub struct Options<'a> {
    pub add_generation_prompt: bool,
    pub continue_final_message: bool,
    /// A JSON object, or "" for none.
    pub kwargs: &'a str,
    /// Current time for strftime_now. `None`: the system clock.
    pub now_unix_s: Option<i64>,
}

pub struct Rendered {
    pub text: String,
    pub plain: Vec<Range>,
    /// Set if `plain` may miss something that a person wrote: a text that contains only the
    /// template's own special tokens. `text` must not contain more.
    pub control: Option<String>,
}

fn invalid(message: impl Into<String>) -> Error {
    Error::new(Code::InvalidArgument, message)
}

impl ChatTemplate {
    pub fn load(dir: &Path, override_path: &str) -> Result<Self> {
        let sources = Sources::load(dir, override_path)?;
        let roles = SpecialTokens::load(dir)?.roles;
        Self::new(sources, roles)
    }

    /// `tool_use`: the template for requests with tools, or "" for none.
    pub fn from_source(
        text: &str,
        tool_use: &str,
        roles: BTreeMap<String, String>,
    ) -> Result<Self> {
        let sources = Sources {
            tool_use: (!tool_use.is_empty()).then(|| tool_use.to_string()),
            ..Sources::one("chat template", text)
        };
        Self::new(sources, roles)
    }

    fn new(sources: Sources, roles: BTreeMap<String, String>) -> Result<Self> {
        let mut env = Environment::new();
        env.set_syntax(
            SyntaxConfig::builder()
                .trim_blocks(true)
                .lstrip_blocks(true)
                .build()
                .map_err(|e| Error::new(Code::Internal, e.to_string()))?,
        );
        env.set_auto_escape_callback(|_| minijinja::AutoEscape::None);
        env.set_fuel(Some(FUEL));
        env.set_unknown_method_callback(methods::call);
        env.set_formatter(|out, _, value| {
            let text = python::str(value)?;
            out.write_str(&text).map_err(minijinja::Error::from)
        });
        builtins::add(&mut env);
        namespaces::add(&mut env);

        let mut literals = Vec::new();
        let mut texts = Vec::new();
        let has_tool_use = sources.tool_use.is_some();
        let named = [
            (DEFAULT, Some(sources.default)),
            (TOOL_USE, sources.tool_use),
        ];
        for (name, text) in named {
            let Some(text) = text else { continue };
            let text = source::without_generation_tags(&text);
            literals.extend(trace::literals(&text));
            texts.push(text.clone());
            env.add_template_owned(name, text)
                .map_err(|e| invalid(format!("{}: {}", sources.origin, describe(&e))))?;
        }
        Ok(Self {
            env,
            has_tool_use,
            roles,
            literals,
            sources: texts,
        })
    }

    /// Whether the source of one of the templates contains this text.
    pub fn mentions(&self, text: &str) -> bool {
        self.sources.iter().any(|source| source.contains(text))
    }

    /// `tools`: a JSON array, or "" for none.
    pub fn render(&self, messages: &str, tools: &str, options: &Options<'_>) -> Result<Rendered> {
        let mut request = Request::parse(messages, tools, options)?;
        let continued = if options.continue_final_message {
            Some(tag_final_message(&mut request.messages)?)
        } else {
            None
        };
        let written = self.render_once(&request, options)?;
        let found = self.trace(&request, options, &written)?;
        let mut rendered = Rendered {
            text: written.text,
            plain: found.plain,
            control: found.control,
        };
        if let Some(final_message) = continued {
            cut_after(&mut rendered, &final_message)?;
        }
        Ok(rendered)
    }

    fn render_once(&self, request: &Request, options: &Options<'_>) -> Result<Written> {
        let mut context = Map::new();
        for (role, token) in &self.roles {
            context.insert(role.clone(), Value::String(token.clone()));
        }
        context.insert("documents".into(), Value::Null);
        context.extend(request.kwargs.clone());
        context.insert("messages".into(), request.messages.clone());
        context.insert("tools".into(), request.tools.clone());
        let prompt = Value::Bool(options.add_generation_prompt);
        context.insert("add_generation_prompt".into(), prompt);

        let now_unix_s = options.now_unix_s.unwrap_or_else(|| {
            let since = SystemTime::now().duration_since(UNIX_EPOCH);
            since.map_or(0, |d| i64::try_from(d.as_secs()).unwrap_or(0))
        });
        let strftime_now = minijinja::Value::from_function(move |format: &str| {
            builtins::strftime(format, now_unix_s)
        });
        let mut context: BTreeMap<String, minijinja::Value> = context
            .into_iter()
            .map(|(key, value)| (key, minijinja::Value::from(Serde(value))))
            .collect();
        context.insert("strftime_now".into(), strftime_now);

        let name = if self.has_tool_use && request.has_tools() {
            TOOL_USE
        } else {
            DEFAULT
        };
        let mut output = Bounded(Vec::new());
        let _scope = namespaces::Scope;
        let n_steps = self
            .env
            .get_template(name)
            .and_then(|t| t.render_captured_to(minijinja::Value::from(context), &mut output))
            .map(|done| done.state().fuel_levels().map_or(0, |(used, _)| used))
            .map_err(|e| render_error(&e))?;
        let text =
            String::from_utf8(output.0).map_err(|e| Error::new(Code::Internal, e.to_string()))?;
        Ok(Written { text, n_steps })
    }

    /// Finds the ranges of the text in which the request's strings may spell special tokens.
    fn trace(&self, request: &Request, options: &Options<'_>, plain: &Written) -> Result<Found> {
        let mut strings = Vec::new();
        request
            .clone()
            .visit(&mut |string| strings.push(string.clone()));
        if !strings.iter().any(|s| trace::is_marked(s)) {
            return Ok(Found::default());
        }
        let seen = strings
            .iter()
            .map(String::as_str)
            .chain([plain.text.as_str()]);
        let codes = trace::Codes::unused_in(seen)
            .ok_or_else(|| invalid("the messages use too many private-use characters"))?;
        let render = |follow: &[Follow], kept: &[String]| {
            let mut marked = request.clone();
            let mut follow = follow.iter();
            marked.visit(&mut |string| {
                if trace::is_marked(string) {
                    match follow.next() {
                        Some(Follow::All) => *string = codes.replace(string, &[]),
                        Some(Follow::ButLiterals) => *string = codes.replace(string, kept),
                        Some(Follow::No) | None => {}
                    }
                }
            });
            self.render_once(&marked, options).ok()
        };
        let literals: Vec<String> = self
            .literals
            .iter()
            .filter(|literal| strings.iter().any(|s| s.contains(literal.as_str())))
            .cloned()
            .collect();
        let n_strings = strings.iter().filter(|s| trace::is_marked(s)).count();
        let mut search = trace::Search {
            codes,
            render: &render,
            plain,
            n_request_bytes: request.n_bytes,
            left: trace::Budget::new(),
        };
        search.run(n_strings, &literals).ok_or_else(|| {
            invalid(
                "the messages contain brackets or bars that the chat template tests for, so special \
                 tokens in them cannot be distinguished from the template's own",
            )
        })
    }
}

#[derive(Clone)]
struct Request {
    messages: Value,
    tools: Value,
    kwargs: Map<String, Value>,
    /// Size of the request as JSON.
    n_bytes: usize,
}

impl Request {
    fn parse(messages_json: &str, tools: &str, options: &Options<'_>) -> Result<Self> {
        let json = |what: &str, text: &str| -> Result<Value> {
            if text.is_empty() {
                return Ok(Value::Null);
            }
            serde_json::from_str(text).map_err(|e| invalid(format!("{what}: {e}")))
        };
        let mut messages = json("messages", messages_json)?;
        let Value::Array(list) = &mut messages else {
            return Err(invalid("messages must be an array"));
        };
        list.iter_mut().for_each(alias_reasoning);
        let kwargs = match json("chat_template_kwargs", options.kwargs)? {
            Value::Null => Map::new(),
            Value::Object(kwargs) => kwargs,
            _ => return Err(invalid("chat_template_kwargs must be an object")),
        };
        Ok(Self {
            messages,
            tools: json("tools", tools)?,
            kwargs,
            n_bytes: messages_json.len() + tools.len() + options.kwargs.len(),
        })
    }

    fn has_tools(&self) -> bool {
        self.tools.as_array().is_some_and(|tools| !tools.is_empty())
    }

    fn visit(&mut self, visit_string: &mut dyn FnMut(&mut String)) {
        trace::visit(&mut self.messages, visit_string);
        trace::visit(&mut self.tools, visit_string);
        trace::visit_entries(&mut self.kwargs, visit_string);
    }
}

/// Reasoning has three names in messages. Templates read reasoning_content or, if older, thinking.
fn alias_reasoning(message: &mut Value) {
    let Value::Object(fields) = message else {
        return;
    };
    let reasoning = ["reasoning_content", "thinking", "reasoning"]
        .iter()
        .find_map(|name| fields.get(*name).filter(|value| !value.is_null()))
        .cloned();
    if let Some(reasoning) = reasoning {
        fields
            .entry("thinking")
            .or_insert_with(|| reasoning.clone());
        fields.insert("reasoning_content".into(), reasoning);
    }
}

/// Appended to the message to continue, to find its end in the rendered text. The trailing space
/// shows whether the template trims the message.
const TAG: &str = "CONTINUE_FINAL_MESSAGE_TAG ";

/// Appends TAG to the last message. Returns the message's text without it.
fn tag_final_message(messages: &mut Value) -> Result<String> {
    let content = messages
        .as_array_mut()
        .and_then(|messages| messages.last_mut())
        .and_then(|message| message.get_mut("content"));
    let text = match content {
        Some(Value::String(text)) => Some(text),
        Some(Value::Array(parts)) => {
            parts
                .iter_mut()
                .rev()
                .find_map(|part| match part.get_mut("text") {
                    Some(Value::String(text)) => Some(text),
                    _ => None,
                })
        }
        _ => None,
    };
    let text = text.ok_or_else(|| {
        invalid("continue_final_message: the last message has no text to continue")
    })?;
    let before = text.clone();
    text.push_str(TAG);
    Ok(before)
}

fn cut_after(rendered: &mut Rendered, final_message: &str) -> Result<()> {
    let text = &rendered.text;
    let tag = text
        .rfind(TAG.trim_end())
        .filter(|_| text.contains(python::strip(final_message)))
        .ok_or_else(|| {
            invalid(
                "continue_final_message: the chat template leaves out the last message or changes \
                 it, so it cannot be continued",
            )
        })?;
    let head = &text[..tag];
    let n_bytes = if text[tag..].starts_with(TAG) {
        head.len()
    } else {
        head.trim_end_matches(python::is_space).len()
    };
    if let Some(control) = &mut rendered.control {
        // If the tag is missing, no part of the control surely belongs to the template.
        control.truncate(control.rfind(TAG.trim_end()).unwrap_or(0));
    }
    rendered.text.truncate(n_bytes);
    rendered.plain.retain(|range| range.end <= n_bytes);
    Ok(())
}

struct Bounded(Vec<u8>);

impl Write for Bounded {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.0.len() + bytes.len() > MAX_OUTPUT_BYTES {
            return Err(io::Error::other("the rendered text is too long"));
        }
        self.0.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn render_error(error: &minijinja::Error) -> Error {
    let mut cause: Option<&(dyn std::error::Error + 'static)> = error.source();
    while let Some(inner) = cause {
        if let Some(raised) = inner.downcast_ref::<builtins::Raised>() {
            return invalid(match raised.0.trim() {
                "" => "the chat template refuses the messages without saying why".into(),
                _ => raised.0.clone(),
            });
        }
        cause = inner.source();
    }
    invalid(match error.kind() {
        ErrorKind::OutOfFuel => "the chat template takes too many steps for this request".into(),
        ErrorKind::WriteFailure => {
            format!("the chat template writes more than {MAX_OUTPUT_BYTES} bytes")
        }
        _ => format!("chat template: {}", describe(error)),
    })
}

fn describe(error: &minijinja::Error) -> String {
    let detail = error.detail().map(|d| format!(": {d}")).unwrap_or_default();
    let line = error
        .line()
        .map(|l| format!(" (line {l})"))
        .unwrap_or_default();
    format!("{}{detail}{line}", error.kind())
}
