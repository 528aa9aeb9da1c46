// The classes and functions that the pickle of a checkpoint may name. Everything else could execute
// code, and is refused.
#pragma once

#include <string_view>

namespace stagecoach::worker {

// Returns "Float" for "FloatStorage". Empty if torch has no such storage.
std::string_view ElementOf(std::string_view storage);

// Whether torch has a dtype of this name, such as "bfloat16".
bool IsTorchDType(std::string_view name);

// Whether `name` of Python's module `module` only builds containers or tensors.
bool IsAllowedInPickle(std::string_view module, std::string_view name);

}  // namespace stagecoach::worker
