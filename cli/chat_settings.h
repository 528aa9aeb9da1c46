// The sampling parameters of a conversation, which the user may change.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "stagecoach/v1/inference.pb.h"

namespace stagecoach::cli {

// Sets the parameter that the flag --NAME of `generate` sets: "temperature 0.7". Without a value,
// the server's default holds again. INVALID_ARGUMENT, with a suggestion, if there is no such
// parameter or it cannot have the value; `sampling` is then unchanged.
absl::Status ChangeSetting(const std::string& name_and_value, v1::SamplingParams& sampling);

// A line for each parameter: its name, and its value or what it does.
std::string SettingsText(const v1::SamplingParams& sampling);

}  // namespace stagecoach::cli
