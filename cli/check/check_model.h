// Finds everything that would make a server's start fail, without allocating memory for weights.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "cli/check/model_report.h"
#include "common/dtype.h"
#include "router/sizing/step_limits.h"

namespace stagecoach::check {

struct CheckOptions {
  std::string model;          // a folder, a .gguf file, or org/name in the local Hugging Face cache
  std::string chat_template;  // a Jinja file; empty: the checkpoint's own
  std::string adapter_dir;    // a LoRA adapter to merge; empty: none
  std::optional<DType> dtype;  // of weights and KV cache in memory; absent: as stored
  int32_t n_stages = 1;
  uint64_t kv_memory_bytes = 0;  // per stage; 0: not checked
  // Longest sequence that the KV cache must hold, in tokens; 0: as long as the cache allows.
  int32_t max_model_len = 0;
  StepLimits limits;  // 0: the default of `serve`
  bool on_gpus = false;
  bool read_weights = true;  // false: only config.json is read, as for dummy weights
  // Reading a tokenizer with a vocabulary of 262k tokens takes seconds; everything else takes
  // milliseconds. False: the tokenizer is read only if its files are small or missing.
  bool read_large_tokenizer = true;
};

// A problem in one part does not hide problems in the others: the config, tensors, tokenizer and
// template are each checked as far as possible without the others.
ModelReport CheckModel(const CheckOptions& options);

}  // namespace stagecoach::check
