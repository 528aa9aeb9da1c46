//! Errors with the codes and messages of absl::Status. Also catches panics at the C interface.

use std::any::Any;
use std::cell::RefCell;
use std::panic::{self, AssertUnwindSafe};
use std::sync::Once;

/// Values of absl::StatusCode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub enum Code {
    InvalidArgument = 3,
    NotFound = 5,
    ResourceExhausted = 8,
    FailedPrecondition = 9,
    OutOfRange = 11,
    Internal = 13,
}

#[derive(Debug)]
pub struct Error {
    pub code: Code,
    pub message: String,
}

pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
        }
    }
}

thread_local! {
    static LAST_PANIC: RefCell<String> = const { RefCell::new(String::new()) };
}

/// The default panic hook prints to stderr. A request must not make a server do that.
fn install_quiet_hook() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        panic::set_hook(Box::new(|info| {
            let place = info.location().map(ToString::to_string).unwrap_or_default();
            let message = format!("{} at {place}", payload_text(info.payload()));
            LAST_PANIC.with(|last| *last.borrow_mut() = message);
        }));
    });
}

fn payload_text(payload: &(dyn Any + Send)) -> &str {
    payload
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| payload.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("panic")
}

/// Runs `body`. A panic inside becomes an `Internal` error.
pub fn catch<T>(body: impl FnOnce() -> Result<T>) -> Result<T> {
    install_quiet_hook();
    panic::catch_unwind(AssertUnwindSafe(body)).unwrap_or_else(|_| {
        let what = LAST_PANIC.with(|last| last.borrow().clone());
        Err(Error::new(
            Code::Internal,
            format!("the text library failed: {what}"),
        ))
    })
}
