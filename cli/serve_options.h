// The launcher's own flags, for `serve` and for `generate --model`, and what goes with them.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include "cli/launch/cluster.h"
#include "common/dtype.h"

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace stagecoach::cli {

inline constexpr const char* kModelHelp =
    "Folder with config.json, weights and tokenizer, a .gguf file, or org/name in the local "
    "Hugging "
    "Face cache";

// Adds --stages, --device and --threads-per-worker.
void AddStageFlags(CLI::App& app, launch::ClusterOptions& options);

// --dtype's value; absent for "auto".
std::optional<DType> ParseDTypeFlag(std::string_view text);

inline constexpr size_t kReportColumns = 100;  // width of what `check` and `doctor` print

// The folder of this program, where worker and router are as well.
std::string ProgramDir();

}  // namespace stagecoach::cli
