// Everything that a start would trip over, found without taking memory for weights.
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
  uint64_t kv_memory_bytes = 0;  // of each stage; 0: not looked at
  int32_t max_model_len = 0;     // tokens that a sequence must be able to have; 0: as many as fit
  router::StepLimits limits;     // 0: as `serve` has them
  bool on_gpus = false;
  bool read_weights = true;  // false: config.json alone counts, as for dummy weights
  // Reading it takes seconds for a vocabulary of 262k tokens; all else takes milliseconds. False:
  // only where it is small or absent.
  bool read_large_tokenizer = true;
};

// One part's problem does not hide another's: config, tensors, tokenizer and template are all
// looked at, as far as they go without each other.
ModelReport CheckModel(const CheckOptions& options);

}  // namespace stagecoach::check
