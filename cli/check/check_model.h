// Finds everything that would make a server's start fail, without allocating memory for weights.
#pragma once

#include <cstdint>
#include <string>

#include "cli/check/model_report.h"
#include "stagecoach/v1/load.pb.h"

namespace stagecoach::check {

struct CheckOptions {
  std::string model;          // a folder, a .gguf file, or org/name in the local Hugging Face cache
  std::string chat_template;  // a Jinja file; empty: the checkpoint's own
  // As for `serve`. Without kv_memory_bytes, the KV cache is not checked.
  v1::LoadConfig config;
  int32_t n_stages = 1;
  bool on_gpus = false;
  // Reading a tokenizer with a vocabulary of 262k tokens takes seconds; everything else takes
  // milliseconds. False: the tokenizer is read only if its files are small or missing.
  bool read_large_tokenizer = true;
};

// A problem in one part does not hide problems in the others: the config, tensors, tokenizer and
// template are each checked as far as possible without the others.
ModelReport CheckModel(const CheckOptions& options);

}  // namespace stagecoach::check
