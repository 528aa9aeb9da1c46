//! Filters, tests and functions with the meaning that they have in transformers' templates.

use std::ffi::{c_char, CString};
use std::fmt;

use minijinja::value::{Kwargs, Rest, ValueKind};
use minijinja::{Environment, Error, ErrorKind, Value};

use super::python::{self, JsonStyle};

/// The message that a template passes to raise_exception.
#[derive(Debug)]
pub struct Raised(pub String);

impl fmt::Display for Raised {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Raised {}

pub fn add(env: &mut Environment<'_>) {
    env.add_filter("tojson", tojson);
    env.add_filter("string", |value: &Value| python::str(value));
    env.add_filter("default", default);
    env.add_filter("d", default);
    env.add_filter("int", int);
    env.add_filter("float", float);
    env.add_filter("trim", trim);
    env.add_filter("indent", indent);
    env.add_filter("join", join);
    env.add_test("iterable", |value: &Value| {
        is_container(value) || is_lazy(value)
    });
    env.add_test("sequence", |value: &Value| is_container(value));
    // Only functions and macros have the kind Plain.
    env.add_test("callable", |value: &Value| value.kind() == ValueKind::Plain);
    env.add_filter("replace", replace);
    env.add_filter("wordcount", |text: &str| text.split_whitespace().count());
    env.add_function("joiner", minijinja_contrib::globals::joiner);
    env.add_function("cycler", |items: Rest<Value>| {
        minijinja_contrib::globals::cycler(items.0)
    });
    env.add_function(
        "raise_exception",
        |message: &Value| -> Result<Value, Error> {
            let message = python::str(message)?;
            Err(Error::new(ErrorKind::InvalidOperation, "raised").with_source(Raised(message)))
        },
    );
}

fn replace(text: &Value, from: &str, to: &str, count: Option<usize>) -> Result<String, Error> {
    let text = python::str(text)?;
    Ok(text.replacen(from, to, count.unwrap_or(usize::MAX)))
}

fn is_container(value: &Value) -> bool {
    matches!(
        value.kind(),
        ValueKind::String | ValueKind::Seq | ValueKind::Map | ValueKind::Undefined
    )
}

fn is_lazy(value: &Value) -> bool {
    value.kind() == ValueKind::Iterable
}

fn tojson(value: &Value, indent: Option<Value>, kwargs: Kwargs) -> Result<Value, Error> {
    let indent = match indent {
        Some(indent) => Some(indent),
        None => kwargs.get::<Option<Value>>("indent")?,
    };
    let indent = indent.filter(|i| !i.is_none()).map(|indent| {
        let n_spaces = indent.as_usize().unwrap_or(0).min(64);
        indent
            .as_str()
            .map_or_else(|| " ".repeat(n_spaces), str::to_string)
    });
    let separators = kwargs.get::<Option<Vec<String>>>("separators")?;
    let (item_separator, key_separator) = match separators.as_deref() {
        Some([item, key]) => (item.clone(), key.clone()),
        Some(_) => {
            return Err(Error::new(
                ErrorKind::InvalidOperation,
                "separators must be two",
            ))
        }
        // json.dumps writes no space after a comma that ends a line.
        None => (
            if indent.is_some() { "," } else { ", " }.into(),
            ": ".into(),
        ),
    };
    let style = JsonStyle {
        ensure_ascii: kwargs.get::<Option<bool>>("ensure_ascii")?.unwrap_or(false),
        indent,
        item_separator,
        key_separator,
        sort_keys: kwargs.get::<Option<bool>>("sort_keys")?.unwrap_or(false),
    };
    kwargs.assert_all_used()?;
    style.dumps(value).map(Value::from)
}

fn default(value: &Value, args: Rest<Value>, kwargs: Kwargs) -> Result<Value, Error> {
    let other = match args.first() {
        Some(other) => Some(other.clone()),
        None => kwargs.get::<Option<Value>>("default_value")?,
    };
    let falsy_too = match args.get(1) {
        Some(flag) => flag.is_true(),
        None => kwargs
            .get::<Option<Value>>("boolean")?
            .is_some_and(|flag| flag.is_true()),
    };
    kwargs.assert_all_used()?;
    if value.is_undefined() || (falsy_too && !value.is_true()) {
        return Ok(other.unwrap_or_else(|| Value::from("")));
    }
    Ok(value.clone())
}

fn int(value: &Value, default: Option<Value>, kwargs: Kwargs) -> Result<Value, Error> {
    let default = match default {
        Some(default) => default,
        None => kwargs
            .get::<Option<Value>>("default")?
            .unwrap_or_else(|| Value::from(0)),
    };
    if value.is_integer() {
        return Ok(value.clone());
    }
    if let Some(text) = value.as_str() {
        let digits = python::strip(text).replace('_', "");
        if let Ok(number) = digits.parse::<i128>() {
            return Ok(Value::from(number));
        }
    }
    Ok(match as_f64(value).filter(|number| number.is_finite()) {
        Some(number) => Value::from(number.trunc() as i128),
        None => default,
    })
}

fn float(value: &Value, default: Option<Value>, kwargs: Kwargs) -> Result<Value, Error> {
    let default = match default {
        Some(default) => default,
        None => kwargs
            .get::<Option<Value>>("default")?
            .unwrap_or_else(|| Value::from(0.0)),
    };
    Ok(as_f64(value).map_or(default, Value::from))
}

fn as_f64(value: &Value) -> Option<f64> {
    match value.kind() {
        ValueKind::Bool => Some(f64::from(u8::from(value.is_true()))),
        ValueKind::Number => f64::try_from(value.clone()).ok(),
        ValueKind::String => python::strip(value.as_str()?).parse().ok(),
        _ => None,
    }
}

fn trim(value: &Value, chars: Option<&str>) -> Result<Value, Error> {
    let text = python::str(value)?;
    Ok(Value::from(match chars {
        Some(set) => text.trim_matches(|c| set.contains(c)),
        None => python::strip(&text),
    }))
}

fn indent(
    value: &Value,
    width: Option<Value>,
    first: Option<bool>,
    blank: Option<bool>,
    kwargs: Kwargs,
) -> Result<Value, Error> {
    let width = match width {
        Some(width) => Some(width),
        None => kwargs.get::<Option<Value>>("width")?,
    };
    let first = first
        .or(kwargs.get::<Option<bool>>("first")?)
        .unwrap_or(false);
    let blank = blank
        .or(kwargs.get::<Option<bool>>("blank")?)
        .unwrap_or(false);
    kwargs.assert_all_used()?;
    let indent = match &width {
        None => " ".repeat(4),
        Some(width) => match width.as_str() {
            Some(text) => text.to_string(),
            None => " ".repeat(width.as_usize().unwrap_or(0).min(1 << 10)),
        },
    };
    // Jinja also appends a line end first, so that an empty last line counts as a line.
    let text = python::str(value)? + "\n";
    let mut out = String::new();
    for (i, line) in python::split_lines(&text, false).into_iter().enumerate() {
        if i > 0 {
            out.push('\n');
        }
        if (i > 0 || first) && (blank || !line.is_empty() || i == 0) {
            out.push_str(&indent);
        }
        out.push_str(line);
    }
    Ok(Value::from(out))
}

fn join(
    value: &Value,
    separator: Option<&str>,
    attribute: Option<&str>,
    kwargs: Kwargs,
) -> Result<Value, Error> {
    let separator = match separator {
        Some(separator) => Some(separator),
        None => kwargs.get::<Option<&str>>("d")?,
    };
    let attribute = match attribute {
        Some(attribute) => Some(attribute),
        None => kwargs.get::<Option<&str>>("attribute")?,
    };
    kwargs.assert_all_used()?;
    let mut out = String::new();
    for (i, item) in value.try_iter()?.enumerate() {
        if i > 0 {
            out.push_str(separator.unwrap_or(""));
        }
        match attribute {
            Some(name) => out.push_str(&python::str(&item.get_attr(name)?)?),
            None => out.push_str(&python::str(&item)?),
        }
    }
    Ok(Value::from(out))
}

/// strftime_now: local time, like datetime.now().
pub fn strftime(format: &str, unix_s: i64) -> Result<String, Error> {
    let invalid = || {
        Error::new(
            ErrorKind::InvalidOperation,
            "strftime_now: bad format or time",
        )
    };
    let format = CString::new(format).map_err(|_| invalid())?;
    if format.is_empty() {
        return Ok(String::new());
    }
    let mut out = vec![0u8; 1024];
    // SAFETY: `time` is plain data, and strftime writes at most out.len() bytes.
    let n_bytes = unsafe {
        let mut time: libc::tm = std::mem::zeroed();
        if libc::localtime_r(&unix_s, &mut time).is_null() {
            return Err(invalid());
        }
        libc::strftime(
            out.as_mut_ptr().cast::<c_char>(),
            out.len(),
            format.as_ptr(),
            &time,
        )
    };
    out.truncate(n_bytes);
    String::from_utf8(out).map_err(|_| invalid())
}
