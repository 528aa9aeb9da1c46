//! Implements the grammar functions of `../text_abi.h`, which documents their contracts.

use std::ffi::c_char;
use std::slice;

use super::matcher::Sequence;
use super::source::{Kind, Source};
use super::{Grammar, Table, Vocabulary};
use crate::abi::{array, entry, text};

#[repr(C)]
pub struct TokenTable {
    kinds: *const u8,
    offsets: *const u32,
    n_ids: usize,
    bytes: *const u8,
    n_bytes: usize,
    eos_ids: *const u32,
    n_eos: usize,
    n_logits: usize,
}

#[no_mangle]
pub unsafe extern "C" fn sc_grammar_vocabulary_new(
    table: *const TokenTable,
    out: *mut *mut Vocabulary,
    error: *mut c_char,
    error_bytes: usize,
) -> i32 {
    entry(error, error_bytes, || {
        let table = &*table;
        *out = Box::into_raw(Box::new(Vocabulary::new(&Table {
            kinds: array(table.kinds, table.n_ids),
            offsets: array(table.offsets, table.n_ids + 1),
            bytes: array(table.bytes, table.n_bytes),
            eos_ids: array(table.eos_ids, table.n_eos),
            n_logits: table.n_logits,
        })?));
        Ok(())
    })
}

#[no_mangle]
pub unsafe extern "C" fn sc_grammar_vocabulary_free(vocabulary: *mut Vocabulary) {
    if !vocabulary.is_null() {
        drop(Box::from_raw(vocabulary));
    }
}

#[no_mangle]
pub unsafe extern "C" fn sc_grammar_compile(
    vocabulary: *const Vocabulary,
    kind: i32,
    source: *const c_char,
    size: usize,
    any_whitespace: i32,
    begins_after: *const c_char,
    n_begins_after: usize,
    out: *mut *mut Grammar,
    error: *mut c_char,
    error_bytes: usize,
) -> i32 {
    entry(error, error_bytes, || {
        let source = Source {
            kind: Kind::from_code(kind)?,
            text: text(source, size)?,
            any_whitespace: any_whitespace != 0,
            begins_after: text(begins_after, n_begins_after)?,
        };
        let grammar = Grammar::compile(&(*vocabulary).factory, source)?;
        *out = Box::into_raw(Box::new(grammar));
        Ok(())
    })
}

#[no_mangle]
pub unsafe extern "C" fn sc_grammar_free(grammar: *mut Grammar) {
    if !grammar.is_null() {
        drop(Box::from_raw(grammar));
    }
}

#[no_mangle]
pub unsafe extern "C" fn sc_grammar_bytes(grammar: *const Grammar) -> usize {
    (*grammar).n_bytes()
}

#[no_mangle]
pub unsafe extern "C" fn sc_grammar_matcher_new(
    grammar: *const Grammar,
    out: *mut *mut Sequence,
    error: *mut c_char,
    error_bytes: usize,
) -> i32 {
    entry(error, error_bytes, || {
        *out = Box::into_raw(Box::new(Sequence::new((*grammar).new_matcher())));
        Ok(())
    })
}

#[no_mangle]
pub unsafe extern "C" fn sc_grammar_matcher_free(matcher: *mut Sequence) {
    if !matcher.is_null() {
        drop(Box::from_raw(matcher));
    }
}

#[no_mangle]
pub unsafe extern "C" fn sc_grammar_matcher_consume(
    matcher: *mut Sequence,
    ids: *const u32,
    n_ids: usize,
    error: *mut c_char,
    error_bytes: usize,
) -> i32 {
    entry(error, error_bytes, || (*matcher).consume(array(ids, n_ids)))
}

#[no_mangle]
pub unsafe extern "C" fn sc_grammar_matcher_mask(
    matcher: *mut Sequence,
    words: *mut u32,
    n_words: usize,
    may_end: *mut i32,
    error: *mut c_char,
    error_bytes: usize,
) -> i32 {
    entry(error, error_bytes, || {
        let words = slice::from_raw_parts_mut(words, n_words);
        *may_end = i32::from((*matcher).mask(words)?);
        Ok(())
    })
}
