//! `namespace()`. Its objects can be stored in each other and in themselves. They are
//! reference-counted, so such cycles would leak; Scope breaks them when a render ends.

use std::cell::RefCell;

use minijinja::value::{ValueKind, ValueOrKwargs};
use minijinja::{context, Environment, Error, Value};

thread_local! {
    static MADE: RefCell<Vec<Value>> = const { RefCell::new(Vec::new()) };
}

pub fn add(env: &mut Environment<'_>) {
    env.add_function(
        "namespace",
        |defaults: Option<ValueOrKwargs>| -> Result<Value, Error> {
            let made = minijinja::functions::namespace(defaults)?;
            MADE.with(|all| all.borrow_mut().push(made.clone()));
            Ok(made)
        },
    );
}

/// Lives while one template is rendered on this thread. Its drop breaks all cycles.
pub struct Scope;

impl Drop for Scope {
    fn drop(&mut self) {
        let env = Environment::empty();
        for made in MADE.with(RefCell::take) {
            for name in names_of_objects(&made) {
                // Only names that a template assigned to are cleared. The defaults of a namespace
                // are older than the namespace, so they cannot be part of a cycle.
                let _ = env.render_str(
                    &format!("{{% set made.{name} = none %}}"),
                    context!(made => made.clone()),
                );
            }
        }
    }
}

fn names_of_objects(namespace: &Value) -> Vec<String> {
    let Ok(names) = namespace.try_iter() else {
        return Vec::new();
    };
    names
        .filter(|name| {
            namespace.get_item(name).is_ok_and(|value| {
                matches!(
                    value.kind(),
                    ValueKind::Map | ValueKind::Seq | ValueKind::Iterable | ValueKind::Plain
                )
            })
        })
        .filter_map(|name| name.as_str().map(str::to_owned))
        .filter(|name| is_identifier(name))
        .collect()
}

/// Other keys come from a dict and may be text of a request, which must never be run as source.
fn is_identifier(name: &str) -> bool {
    let mut bytes = name.bytes();
    bytes.next().is_some_and(|b| b.is_ascii_alphabetic() || b == b'_')
        && bytes.all(|b| b.is_ascii_alphanumeric() || b == b'_')
}
