//! Tokenizing, chat templates and grammars for stagecoach, behind the C interface of `../text_abi.h`.

mod abi;
mod checkpoint;
mod error;
mod files;
mod grammar;
mod memory;
mod pieces;
mod rendered;
mod template;
mod tokenizer;
mod vocab;
