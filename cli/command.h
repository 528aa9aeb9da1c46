// Each subcommand adds its flags to the program's. When the user names a subcommand, it stores its
// function in `command`.
#pragma once

#include <functional>

namespace CLI {
class App;
}

namespace stagecoach::cli {

// Exit codes of the program.
inline constexpr int kExitOk = 0;
inline constexpr int kExitError = 1;
inline constexpr int kExitUsage = 2;

// Runs a subcommand; returns the exit code.
using Command = std::function<int()>;

void AddServe(CLI::App& app, Command& command);
void AddRun(CLI::App& app, Command& command);
void AddReplicas(CLI::App& app, Command& command);
void AddGenerate(CLI::App& app, Command& command);
void AddBatch(CLI::App& app, Command& command);
void AddChat(CLI::App& app, Command& command);
void AddBench(CLI::App& app, Command& command);
void AddDrill(CLI::App& app, Command& command);
void AddCheck(CLI::App& app, Command& command);
void AddPlan(CLI::App& app, Command& command);
void AddDoctor(CLI::App& app, Command& command);
void AddTimeline(CLI::App& app, Command& command);
void AddQuantize(CLI::App& app, Command& command);
void AddKv(CLI::App& app, Command& command);
// They look at all other commands when they run.
void AddConfig(CLI::App& app, Command& command);
void AddShellCompletion(CLI::App& app, Command& command);

}  // namespace stagecoach::cli
