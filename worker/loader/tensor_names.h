// How one tensor is spelled by different writers of checkpoints.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace stagecoach::worker {

// The names under which checkpoints hold tensor `name`, likeliest first. `with_lora`: also as peft
// saves a model whose adapter was not merged.
std::vector<std::string> Spellings(std::string_view name, bool with_lora = false);

// Whether peft left this tensor behind: lora_A, lora_B and the like, base_layer, or its prefix.
bool IsLoraName(std::string_view name);

// Whether a tensor that no spec asks for is a leftover that changes nothing: buffers that are
// computed anew, such as rotary frequencies and causal masks.
bool IsComputedBuffer(std::string_view name);

}  // namespace stagecoach::worker
