// How different writers of checkpoints spell a tensor's name.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace stagecoach::worker {

// Names under which checkpoints store tensor `name`, most likely first. `with_lora`: also the
// spelling that peft uses when it saves a model without merging its adapter.
std::vector<std::string> Spellings(std::string_view name, bool with_lora = false);

// Whether the name shows that peft saved an unmerged adapter: lora_A, lora_B and similar,
// base_layer, or peft's prefix.
bool IsLoraName(std::string_view name);

// Whether a tensor that no spec requests can be ignored: a buffer that is recomputed, such as
// rotary frequencies and causal masks.
bool IsComputedBuffer(std::string_view name);

}  // namespace stagecoach::worker
