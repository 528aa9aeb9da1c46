#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <iostream>
#include <iterator>
#include <memory>
#include <optional>

#include "cli/chat_session.h"
#include "cli/command.h"
#include "cli/own_server.h"
#include "cli/serve_options.h"
#include "common/flags/serve_flags.h"
#include "common/status.h"

namespace stagecoach::cli {
namespace {

struct RunFlags {
  ServerChoice server;
  ChatOptions chat;
  std::string prompt;
};

std::string ReadInput() { return {std::istreambuf_iterator<char>(std::cin), {}}; }

// Whether somebody's output or a file is the input. An input that merely exists, such as the socket
// of a service, may never end.
bool HasInput() {
  struct stat input{};
  return fstat(STDIN_FILENO, &input) == 0 && (S_ISFIFO(input.st_mode) || S_ISREG(input.st_mode));
}

// nullopt: the user talks to the model in the terminal.
std::optional<std::string> PromptOf(const std::string& given) {
  if (given == "-") return ReadInput();
  if (!HasInput()) return given.empty() ? std::nullopt : std::optional(given);
  const std::string input = ReadInput();
  if (given.empty() || input.empty()) return given + input;
  return fmt::format("{}\n\n{}", given, input);
}

// For a model that only continues text.
absl::StatusOr<int> Continue(const std::string& prompt, const RunFlags& flags, const Client& client,
                             ChatInterrupts& interrupts) {
  v1::GenerateRequest request;
  request.set_text(prompt);
  *request.mutable_sampling() = flags.chat.sampling;
  Canceller canceller;
  interrupts.SetAnswer(&canceller);
  AnswerPrinter printer({});  // the text may be anything
  const absl::Status status = client.Stream(
      request, [&](const v1::GenerateResponse& piece) { printer.Show(piece); }, &canceller);
  interrupts.SetAnswer(nullptr);
  printer.End();
  if (!status.ok() && !absl::IsCancelled(status)) return status;
  return kExitOk;
}

absl::StatusOr<int> Talk(const RunFlags& flags, const std::optional<std::string>& prompt,
                         const Connection& connection, ChatInterrupts& interrupts) {
  SC_ASSIGN_OR_RETURN(const std::unique_ptr<Client> client, Connect(connection));
  SC_ASSIGN_OR_RETURN(const v1::Model model, client->GetModel());
  if (!model.has_chat_template() && prompt) return Continue(*prompt, flags, *client, interrupts);
  if (!model.has_chat_template()) {
    return absl::FailedPreconditionError(fmt::format(
        "{} has no chat template, so it only continues text: give a PROMPT", model.id()));
  }
  ChatSession session(flags.chat, *client, interrupts);
  const int exit_code = prompt ? session.AskOnce(*prompt) : session.Run();
  interrupts.SetWhenIdle(nullptr);
  return exit_code;
}

int Run(const RunFlags& flags) {
  if (const absl::Status status = CheckChatOptions(flags.chat); !status.ok()) {
    fmt::print(stderr, "error: {}\n", std::string(status.message()));
    return kExitUsage;
  }
  ChatInterrupts interrupts;  // blocks signals before gRPC starts its threads
  const std::optional<std::string> prompt = PromptOf(flags.prompt);
  if (prompt && prompt->find_first_not_of(" \t\r\n") == std::string::npos) {
    fmt::print(stderr, "error: the prompt is empty\n");
    return kExitUsage;
  }
  int exit_code = kExitError;
  const absl::Status status = WithServer(flags.server, [&](const Connection& connection) {
    const absl::StatusOr<int> talked = Talk(flags, prompt, connection, interrupts);
    if (talked.ok()) exit_code = *talked;
    return talked.status();
  });
  if (status.ok()) return exit_code;
  fmt::print(stderr, "error: {}\n", std::string(status.message()));
  return kExitError;
}

}  // namespace

void AddRun(CLI::App& app, Command& command) {
  auto flags = std::make_shared<RunFlags>();
  CLI::App* run =
      app.add_subcommand("run",
                         "Serves a model for this command only. With PROMPT, prints one answer to "
                         "standard output. Without it, starts a conversation in the terminal");
  run->add_option("model", flags->server.cluster.model, kModelHelp)->type_name("MODEL")->required();
  run->add_option("prompt", flags->prompt,
                  "Message to answer. -: read it from standard input. Text that is piped in is "
                  "appended to it")
      ->type_name("PROMPT");
  AddChatFlags(*run, flags->chat);
  AddStageFlags(*run, flags->server.cluster);
  AddPipelineFlags(*run, flags->server.cluster.serve);
  run->callback([flags, &command] { command = [flags] { return Run(*flags); }; });
}

}  // namespace stagecoach::cli
