// The launcher's flags, shared by `serve` and by commands with --model.
#pragma once

#include <cstddef>
#include <string>

#include "cli/launch/cluster.h"

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace stagecoach::cli {

inline constexpr const char* kModelHelp =
    "Folder with config.json, weights and tokenizer; a .gguf file; or org/name in the local "
    "Hugging Face cache";

// Adds the flags for stages, devices, links between stages and compute threads.
void AddStageFlags(CLI::App& app, launch::ClusterOptions& options);

inline constexpr size_t kReportColumns = 100;  // width of the output of `check` and `doctor`

// The folder of this program, which also has the worker and the router.
std::string ProgramDir();

}  // namespace stagecoach::cli
