//! Vocabularies that do not come as a tokenizer.json: each source is read into one of two
//! descriptions, from which the tokenizer.json is made that the tokenizers library then loads.

mod added;
mod byte_level;
mod gguf;
mod merges;
mod protobuf;
mod sentencepiece;
mod tekken;
mod vocab_json;

pub use added::AddedToken;
pub use byte_level::lower_prefix_space;
pub use gguf::{Gguf, GgufIds};
pub use sentencepiece::from_model_file;
pub use tekken::from_tekken;
pub use vocab_json::from_vocab_and_merges;
