//! Python methods of strings, lists and dicts that templates call.

use minijinja::value::{from_args, Kwargs, ValueKind};
use minijinja::{Error, ErrorKind, State, Value};
use minijinja_contrib::pycompat;

use super::python;

pub fn call(
    state: &mut State,
    value: &Value,
    method: &str,
    args: &[Value],
) -> Result<Value, Error> {
    let found = match value.kind() {
        ValueKind::String => string(value.as_str().unwrap_or_default(), method, args)?,
        ValueKind::Seq if method == "index" => Some(index(value, args)?),
        ValueKind::Map if method == "copy" => Some(value.clone()),
        _ => None,
    };
    match found {
        Some(result) => Ok(result),
        None => pycompat::unknown_method_callback(state, value, method, args),
    }
}

fn not_found(what: &str) -> Error {
    Error::new(ErrorKind::InvalidOperation, format!("{what} not found"))
}

fn index(list: &Value, args: &[Value]) -> Result<Value, Error> {
    let (wanted,): (&Value,) = from_args(args)?;
    let at = list.try_iter()?.position(|item| item == *wanted);
    at.map(Value::from).ok_or_else(|| not_found("the value is"))
}

/// String methods that minijinja lacks or that differ from Python's. `None` for all others.
fn string(s: &str, method: &str, args: &[Value]) -> Result<Option<Value>, Error> {
    Ok(Some(match method {
        "strip" | "lstrip" | "rstrip" => {
            let (chars,): (Option<&str>,) = from_args(args)?;
            let cut = |c: char| chars.map_or_else(|| python::is_space(c), |set| set.contains(c));
            Value::from(match method {
                "lstrip" => s.trim_start_matches(cut),
                "rstrip" => s.trim_end_matches(cut),
                _ => s.trim_matches(cut),
            })
        }
        "split" | "rsplit" => split(s, method == "rsplit", args)?,
        "splitlines" => {
            let (keep_ends,): (Option<bool>,) = from_args(args)?;
            let lines = python::split_lines(s, keep_ends.unwrap_or(false));
            lines.into_iter().map(Value::from).collect()
        }
        "removeprefix" => {
            let (prefix,): (&str,) = from_args(args)?;
            Value::from(s.strip_prefix(prefix).unwrap_or(s))
        }
        "removesuffix" => {
            let (suffix,): (&str,) = from_args(args)?;
            Value::from(s.strip_suffix(suffix).unwrap_or(s))
        }
        "partition" => {
            let (separator,): (&str,) = from_args(args)?;
            let (head, tail) = s.split_once(separator).unwrap_or((s, ""));
            let middle = if s.contains(separator) { separator } else { "" };
            [head, middle, tail].into_iter().map(Value::from).collect()
        }
        "rpartition" => {
            let (separator,): (&str,) = from_args(args)?;
            let (head, tail) = s.rsplit_once(separator).unwrap_or(("", s));
            let middle = if s.contains(separator) { separator } else { "" };
            [head, middle, tail].into_iter().map(Value::from).collect()
        }
        "zfill" => {
            let (width,): (usize,) = from_args(args)?;
            let n_missing = width.min(1 << 16).saturating_sub(s.chars().count());
            let n_sign = usize::from(s.starts_with(['+', '-']));
            Value::from(format!(
                "{}{}{}",
                &s[..n_sign],
                "0".repeat(n_missing),
                &s[n_sign..]
            ))
        }
        "ljust" | "rjust" | "center" => {
            let (width, fill): (usize, Option<char>) = from_args(args)?;
            let n_missing = width.min(1 << 16).saturating_sub(s.chars().count());
            let n_before = match method {
                "ljust" => 0,
                "rjust" => n_missing,
                // If the padding is odd, Python puts the extra character on the left when the width
                // is odd.
                _ => n_missing / 2 + (n_missing & width & 1),
            };
            let pad = |n: usize| fill.unwrap_or(' ').to_string().repeat(n);
            Value::from(format!("{}{s}{}", pad(n_before), pad(n_missing - n_before)))
        }
        "index" => {
            let (what,): (&str,) = from_args(args)?;
            let at = s.find(what).ok_or_else(|| not_found("the substring is"))?;
            Value::from(s[..at].chars().count())
        }
        "casefold" => Value::from(s.to_lowercase()),
        "isdecimal" => Value::from(!s.is_empty() && s.chars().all(|c| c.is_ascii_digit())),
        _ => return Ok(None),
    }))
}

fn split(s: &str, from_right: bool, args: &[Value]) -> Result<Value, Error> {
    let (separator, limit, kwargs): (Option<&str>, Option<i64>, Kwargs) = from_args(args)?;
    let separator = match separator {
        Some(separator) => Some(separator),
        None => kwargs.get::<Option<&str>>("sep")?,
    };
    let limit = match limit {
        Some(limit) => Some(limit),
        None => kwargs.get::<Option<i64>>("maxsplit")?,
    };
    kwargs.assert_all_used()?;
    let limit = limit
        .and_then(|n| usize::try_from(n).ok())
        .unwrap_or(usize::MAX);
    let n_parts = limit.saturating_add(1);
    let parts: Vec<&str> = match separator {
        Some("") => return Err(Error::new(ErrorKind::InvalidOperation, "empty separator")),
        Some(separator) if from_right => {
            let mut parts: Vec<&str> = s.rsplitn(n_parts, separator).collect();
            parts.reverse();
            parts
        }
        Some(separator) => s.splitn(n_parts, separator).collect(),
        None if from_right => split_space_right(s, limit),
        None => split_space(s, limit),
    };
    Ok(parts.into_iter().map(Value::from).collect())
}

fn split_space(s: &str, limit: usize) -> Vec<&str> {
    let mut parts = Vec::new();
    let mut rest = s.trim_start_matches(python::is_space);
    while !rest.is_empty() {
        let end = rest.find(python::is_space).filter(|_| parts.len() < limit);
        let end = end.unwrap_or(rest.len());
        parts.push(&rest[..end]);
        rest = rest[end..].trim_start_matches(python::is_space);
    }
    parts
}

fn split_space_right(s: &str, limit: usize) -> Vec<&str> {
    let mut parts = Vec::new();
    let mut rest = s.trim_end_matches(python::is_space);
    while !rest.is_empty() {
        let space = rest.rfind(python::is_space).filter(|_| parts.len() < limit);
        let begin = space.map_or(0, |at| {
            at + rest[at..].chars().next().map_or(0, char::len_utf8)
        });
        parts.push(&rest[begin..]);
        rest = rest[..begin].trim_end_matches(python::is_space);
    }
    parts.reverse();
    parts
}
