//! Vocabularies in formats other than tokenizer.json. Each format is read into one of two
//! descriptions. From these a tokenizer.json is made, which the tokenizers library loads.

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
