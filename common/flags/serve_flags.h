// Flags that `stagecoach serve` and `stagecoach-router` share. The launcher parses them and passes
// them on to the router, so names, defaults and help texts have one source: a field in one of the
// structs here, and its line in the function that declares the struct's flags.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "common/flags/front_end_flags.h"
#include "common/flags/pipeline_flags.h"

namespace CLI {
class App;
}

namespace stagecoach {

struct ServeFlags : FrontEndFlags, PipelineFlags {
  bool operator==(const ServeFlags&) const = default;
};

// Adds the flags to `app`, which writes to `flags` when it parses; `flags` must outlive `app`.
void AddServeFlags(CLI::App& app, ServeFlags& flags);

// For commands that start a pipeline for themselves and have no front end to configure.
void AddPipelineFlags(CLI::App& app, PipelineFlags& flags);

// INVALID_ARGUMENT if the flags leave no address that clients can reach, or contradict each other.
absl::Status CheckServeFlags(const ServeFlags& flags);

// Returns the command-line arguments that give `flags`, together with the variables of
// ToEnvironment ("NAME=VALUE"), which may have passwords. Flags with their default value are left
// out.
std::vector<std::string> ToArgs(const ServeFlags& flags);
std::vector<std::string> ToEnvironment(const ServeFlags& flags);

}  // namespace stagecoach
