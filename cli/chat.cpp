#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>

#include "cli/chat_session.h"
#include "cli/client.h"
#include "cli/command.h"

namespace stagecoach::cli {
namespace {

struct ChatFlags {
  Connection connection;
  ChatOptions chat;
};

int RunChat(const ChatFlags& flags) {
  if (const absl::Status status = CheckChatOptions(flags.chat); !status.ok()) {
    fmt::print(stderr, "error: {}\n", std::string(status.message()));
    return kExitUsage;
  }
  ChatInterrupts interrupts;  // blocks signals before gRPC starts its threads
  const absl::StatusOr<std::unique_ptr<Client>> client = Connect(flags.connection);
  if (!client.ok()) {
    fmt::print(stderr, "error: {}\n", std::string(client.status().message()));
    return kExitError;
  }
  ChatSession session(flags.chat, **client, interrupts);
  const int exit_code = session.Run();
  interrupts.SetWhenIdle(nullptr);
  return exit_code;
}

}  // namespace

void AddChat(CLI::App& app, Command& command) {
  auto options = std::make_shared<ChatFlags>();
  CLI::App* chat =
      app.add_subcommand("chat",
                         "Starts a conversation in the terminal. If standard input is not a "
                         "terminal, each of its lines is a question, except /reset and /exit");
  chat->footer(kReconnectHelp);
  AddConnectionFlags(*chat, options->connection);
  AddChatFlags(*chat, options->chat);
  chat->callback([options, &command] { command = [options] { return RunChat(*options); }; });
}

}  // namespace stagecoach::cli
