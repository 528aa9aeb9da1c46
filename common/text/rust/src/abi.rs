//! Implements the functions of `../text_abi.h`, which documents their contracts.

use std::ffi::{c_char, CStr};
use std::path::Path;
use std::ptr;
use std::slice;

use crate::error::{catch, Code, Error, Result};
use crate::template::{ChatTemplate, Options, Rendered};
use crate::tokenizer::Tokenizer;
use crate::vocab::{Gguf, GgufIds};

#[repr(C)]
pub struct Pieces {
    decode: i32,
    n_ids: i32,
    flags: *const u8,
    offsets: *const u32,
    bytes: *const u8,
    first_offsets: *const u32,
    first_bytes: *const u8,
    n_strip: i32,
    strip_byte: u8,
}

/// Bytes `begin..end` of a text.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    pub begin: usize,
    pub end: usize,
}

/// A C array as a slice. If `n` is 0 the slice is empty, whatever the pointer is.
///
/// # Safety
/// `data` points to `n` values that outlive the result.
pub unsafe fn array<'a, T>(data: *const T, n: usize) -> &'a [T] {
    if n == 0 {
        &[]
    } else {
        slice::from_raw_parts(data, n)
    }
}

/// # Safety
/// As for [`array`].
pub unsafe fn text<'a>(data: *const c_char, size: usize) -> Result<&'a str> {
    std::str::from_utf8(array(data.cast(), size)).map_err(|e| {
        Error::new(
            Code::InvalidArgument,
            format!("the text is not UTF-8 at byte {}", e.valid_up_to()),
        )
    })
}

/// Runs the body of an entry point and reports its error as the header describes.
///
/// # Safety
/// `error` is null or points to `error_bytes` bytes.
pub unsafe fn entry(
    error: *mut c_char,
    error_bytes: usize,
    body: impl FnOnce() -> Result<()>,
) -> i32 {
    let Err(failure) = catch(body) else { return 0 };
    if !error.is_null() && error_bytes > 0 {
        // A NUL, for example from a checkpoint's template, would end the C string early.
        let message = failure.message.replace('\0', "\u{fffd}");
        let mut n = message.len().min(error_bytes - 1);
        while !message.is_char_boundary(n) {
            n -= 1;
        }
        ptr::copy_nonoverlapping(message.as_ptr(), error.cast(), n);
        *error.add(n) = 0;
    }
    failure.code as i32
}

/// # Safety
/// `out` points to `capacity` values and `n_out` to one.
pub unsafe fn write_out<T: Copy>(
    values: &[T],
    out: *mut T,
    capacity: usize,
    n_out: *mut usize,
) -> Result<()> {
    *n_out = values.len();
    if values.len() > capacity {
        return Err(Error::new(
            Code::OutOfRange,
            "the output buffer is too small",
        ));
    }
    if !values.is_empty() {
        ptr::copy_nonoverlapping(values.as_ptr(), out, values.len());
    }
    Ok(())
}

#[no_mangle]
pub unsafe extern "C" fn sc_text_tokenizer_load(
    model_dir: *const c_char,
    out: *mut *mut Tokenizer,
    error: *mut c_char,
    error_bytes: usize,
) -> i32 {
    entry(error, error_bytes, || {
        let dir = text(model_dir, CStr::from_ptr(model_dir).count_bytes())?;
        *out = Box::into_raw(Box::new(Tokenizer::load(Path::new(dir))?));
        Ok(())
    })
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct Text {
    data: *const c_char,
    size: usize,
}

impl Text {
    /// # Safety
    /// As for [`array`].
    unsafe fn get<'a>(self) -> Result<&'a str> {
        text(self.data, self.size)
    }
}

/// # Safety
/// As for [`array`], for the array and every text in it.
unsafe fn texts<'a>(data: *const Text, n: usize, what: &str) -> Result<Vec<&'a str>> {
    let read = |(i, text): (usize, &Text)| {
        text.get()
            .map_err(|e| Error::new(e.code, format!("{what}[{i}]: {}", e.message)))
    };
    array(data, n).iter().enumerate().map(read).collect()
}

#[repr(C)]
pub struct GgufMetadata {
    model: Text,
    pre: Text,
    tokens: *const Text,
    n_tokens: usize,
    scores: *const f32,
    n_scores: usize,
    kinds: *const i32,
    n_kinds: usize,
    merges: *const Text,
    n_merges: usize,
    bos_id: i64,
    eos_id: i64,
    unk_id: i64,
    pad_id: i64,
    add_bos: i32,
    add_eos: i32,
    add_space_prefix: i32,
}

#[no_mangle]
pub unsafe extern "C" fn sc_text_tokenizer_from_gguf(
    gguf: *const GgufMetadata,
    out: *mut *mut Tokenizer,
    error: *mut c_char,
    error_bytes: usize,
) -> i32 {
    entry(error, error_bytes, || {
        let gguf = &*gguf;
        // An id beyond 32 bits becomes u32::MAX, which no vocabulary contains.
        let id = |id: i64| (id >= 0).then(|| u32::try_from(id).unwrap_or(u32::MAX));
        let flag = |flag: i32| (flag >= 0).then_some(flag != 0);
        let tokenizer = Tokenizer::from_gguf(&Gguf {
            model: gguf.model.get()?,
            pre: gguf.pre.get()?,
            tokens: texts(gguf.tokens, gguf.n_tokens, "tokenizer.ggml.tokens")?,
            scores: array(gguf.scores, gguf.n_scores),
            kinds: array(gguf.kinds, gguf.n_kinds),
            merges: texts(gguf.merges, gguf.n_merges, "tokenizer.ggml.merges")?,
            ids: GgufIds {
                bos: id(gguf.bos_id),
                eos: id(gguf.eos_id),
                unk: id(gguf.unk_id),
                pad: id(gguf.pad_id),
            },
            add_bos: flag(gguf.add_bos),
            add_eos: flag(gguf.add_eos),
            add_space_prefix: flag(gguf.add_space_prefix),
        })?;
        *out = Box::into_raw(Box::new(tokenizer));
        Ok(())
    })
}

#[no_mangle]
pub unsafe extern "C" fn sc_text_tokenizer_free(tokenizer: *mut Tokenizer) {
    if !tokenizer.is_null() {
        drop(Box::from_raw(tokenizer));
    }
}

#[no_mangle]
pub unsafe extern "C" fn sc_text_tokenizer_pieces(tokenizer: *const Tokenizer, out: *mut Pieces) {
    let pieces = (*tokenizer).pieces();
    let first = pieces.first.as_ref();
    *out = Pieces {
        decode: pieces.decode as i32,
        n_ids: pieces.flags.len() as i32,
        flags: pieces.flags.as_ptr(),
        offsets: pieces.all.offsets.as_ptr(),
        bytes: pieces.all.bytes.as_ptr(),
        first_offsets: first.map_or(ptr::null(), |t| t.offsets.as_ptr()),
        first_bytes: first.map_or(ptr::null(), |t| t.bytes.as_ptr()),
        n_strip: pieces.n_strip as i32,
        strip_byte: pieces.strip_byte,
    };
}

#[no_mangle]
pub unsafe extern "C" fn sc_text_tokenizer_role(
    tokenizer: *const Tokenizer,
    role: *const c_char,
    data: *mut *const c_char,
    size: *mut usize,
) {
    let role = CStr::from_ptr(role).to_str().unwrap_or_default();
    let token = (*tokenizer).role(role);
    *data = token.as_ptr().cast();
    *size = token.len();
}

#[no_mangle]
pub unsafe extern "C" fn sc_text_tokenizer_id(
    tokenizer: *const Tokenizer,
    piece: *const c_char,
    size: usize,
) -> i32 {
    let found = catch(|| Ok((*tokenizer).id(text(piece, size)?)));
    found.ok().flatten().map_or(-1, |id| id as i32)
}

#[no_mangle]
pub unsafe extern "C" fn sc_text_encode(
    tokenizer: *const Tokenizer,
    data: *const c_char,
    size: usize,
    plain: *const Range,
    n_plain: usize,
    add_special_tokens: i32,
    ids: *mut i32,
    capacity: usize,
    n_ids: *mut usize,
    error: *mut c_char,
    error_bytes: usize,
) -> i32 {
    entry(error, error_bytes, || {
        let encoded = (*tokenizer).encode(
            text(data, size)?,
            array(plain, n_plain),
            add_special_tokens != 0,
        )?;
        write_out(&encoded, ids.cast(), capacity, n_ids)
    })
}

#[no_mangle]
pub unsafe extern "C" fn sc_text_decode(
    tokenizer: *const Tokenizer,
    ids: *const i32,
    n_ids: usize,
    skip_special_tokens: i32,
    out: *mut c_char,
    capacity: usize,
    size: *mut usize,
    error: *mut c_char,
    error_bytes: usize,
) -> i32 {
    entry(error, error_bytes, || {
        // As u32, a negative id is above every vocabulary, so it contributes nothing.
        let ids: &[u32] = array(ids.cast(), n_ids);
        let decoded = (*tokenizer).decode(ids, skip_special_tokens != 0)?;
        write_out(decoded.as_bytes(), out.cast(), capacity, size)
    })
}

#[repr(C)]
pub struct RenderOptions {
    add_generation_prompt: i32,
    continue_final_message: i32,
    kwargs: *const c_char,
    n_kwargs: usize,
    now_unix_s: i64,
}

#[repr(C)]
pub struct RenderedView {
    text: *const c_char,
    size: usize,
    plain: *const Range,
    n_plain: usize,
    control: *const c_char,
    n_control: usize,
}

#[no_mangle]
pub unsafe extern "C" fn sc_text_template_load(
    model_dir: *const c_char,
    override_path: *const c_char,
    out: *mut *mut ChatTemplate,
    error: *mut c_char,
    error_bytes: usize,
) -> i32 {
    entry(error, error_bytes, || {
        let dir = text(model_dir, CStr::from_ptr(model_dir).count_bytes())?;
        let path = text(override_path, CStr::from_ptr(override_path).count_bytes())?;
        *out = Box::into_raw(Box::new(ChatTemplate::load(Path::new(dir), path)?));
        Ok(())
    })
}

#[no_mangle]
pub unsafe extern "C" fn sc_text_template_from_source(
    source: *const c_char,
    size: usize,
    tool_use: Text,
    roles: *const Text,
    n_roles: usize,
    out: *mut *mut ChatTemplate,
    error: *mut c_char,
    error_bytes: usize,
) -> i32 {
    entry(error, error_bytes, || {
        let source = text(source, size)?;
        let roles = texts(roles, n_roles * 2, "roles")?;
        let roles = roles.chunks(2).map(|pair| (pair[0].into(), pair[1].into()));
        let template = ChatTemplate::from_source(source, tool_use.get()?, roles.collect())?;
        *out = Box::into_raw(Box::new(template));
        Ok(())
    })
}

#[no_mangle]
pub unsafe extern "C" fn sc_text_template_mentions(
    template: *const ChatTemplate,
    data: *const c_char,
    size: usize,
) -> i32 {
    let found = catch(|| Ok((*template).mentions(text(data, size)?)));
    i32::from(found.unwrap_or(false))
}

#[no_mangle]
pub unsafe extern "C" fn sc_text_template_free(template: *mut ChatTemplate) {
    if !template.is_null() {
        drop(Box::from_raw(template));
    }
}

#[no_mangle]
pub unsafe extern "C" fn sc_text_template_render(
    template: *const ChatTemplate,
    messages: *const c_char,
    n_messages: usize,
    tools: *const c_char,
    n_tools: usize,
    options: *const RenderOptions,
    out: *mut *mut Rendered,
    view: *mut RenderedView,
    error: *mut c_char,
    error_bytes: usize,
) -> i32 {
    entry(error, error_bytes, || {
        let options = &*options;
        let rendered = (*template).render(
            text(messages, n_messages)?,
            text(tools, n_tools)?,
            &Options {
                add_generation_prompt: options.add_generation_prompt != 0,
                continue_final_message: options.continue_final_message != 0,
                kwargs: text(options.kwargs, options.n_kwargs)?,
                now_unix_s: (options.now_unix_s >= 0).then_some(options.now_unix_s),
            },
        )?;
        *view = RenderedView {
            text: rendered.text.as_ptr().cast(),
            size: rendered.text.len(),
            plain: rendered.plain.as_ptr(),
            n_plain: rendered.plain.len(),
            control: (rendered.control.as_ref()).map_or(ptr::null(), |text| text.as_ptr().cast()),
            n_control: rendered.control.as_ref().map_or(0, String::len),
        };
        *out = Box::into_raw(Box::new(rendered));
        Ok(())
    })
}

#[no_mangle]
pub unsafe extern "C" fn sc_text_rendered_free(rendered: *mut Rendered) {
    if !rendered.is_null() {
        drop(Box::from_raw(rendered));
    }
}
