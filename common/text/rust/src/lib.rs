//! Tokenizing and chat templates for stagecoach, behind the C interface of `../text_abi.h`.

mod abi;
mod checkpoint;
mod error;
mod files;
mod pieces;
mod rendered;
mod template;
mod tokenizer;
mod vocab;
