#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <boost/json.hpp>
#include <csignal>
#include <cstdio>
#include <memory>

#include "cli/client.h"
#include "cli/command.h"
#include "cli/completion.h"
#include "cli/interrupt.h"
#include "cli/json_out.h"
#include "cli/own_server.h"
#include "cli/sampling_flags.h"
#include "common/json_text.h"
#include "common/status.h"

namespace stagecoach::cli {
namespace {

struct GenerateFlags {
  ServerChoice server;
  std::string prompt;
  std::vector<int32_t> prompt_ids;
  std::string chat;
  std::string system;
  int32_t priority = 0;
  bool echo = false;
  bool json = false;
  v1::SamplingParams sampling;
};

v1::GenerateRequest MakeGenerateRequest(const GenerateFlags& options) {
  v1::GenerateRequest request;
  if (options.prompt_ids.empty()) {
    request.set_text(options.prompt);
  } else {
    request.mutable_tokens()->mutable_ids()->Add(options.prompt_ids.begin(),
                                                 options.prompt_ids.end());
  }
  *request.mutable_sampling() = options.sampling;
  request.set_priority(options.priority);
  request.set_echo(options.echo);
  return request;
}

v1::ChatRequest MakeChatRequest(const GenerateFlags& options) {
  v1::ChatRequest request;
  const auto add = [&request](const char* role, const std::string& content) {
    v1::ChatMessage& message = *request.add_messages();
    message.set_role(role);
    message.set_content(content);
  };
  if (!options.system.empty()) add("system", options.system);
  add("user", options.chat);
  *request.mutable_sampling() = options.sampling;
  request.set_priority(options.priority);
  request.set_separate_reasoning(false);
  return request;
}

// Prints text as it arrives. Choices arrive interleaved, so several choices are printed one after
// the other. If nobody reads the text any more, cancels the answer.
class TextPrinter {
 public:
  TextPrinter(bool one_choice, Canceller& canceller)
      : one_choice_(one_choice), canceller_(canceller) {}

  void Print(const v1::GenerateResponse& piece) {
    if (piece.has_prompt()) Write(piece.prompt().text());
    if (one_choice_) Write(piece.text());
  }
  void End(const Completion& completion) {
    for (size_t i = 0; !one_choice_ && i < completion.choices().size(); ++i) {
      Write(fmt::format("[{}]\n{}\n", i, completion.choices()[i].text));
    }
    if (one_choice_) Write("\n");
  }

 private:
  void Write(const std::string& text) {
    std::fwrite(text.data(), 1, text.size(), stdout);
    if (std::fflush(stdout) != 0) canceller_.Cancel();
  }

  const bool one_choice_;
  Canceller& canceller_;
};

// An empty answer looks like a fault otherwise.
void ExplainEmpty(const Completion& completion, const GenerateFlags& options) {
  const bool is_empty = std::all_of(completion.choices().begin(), completion.choices().end(),
                                    [](const auto& choice) { return choice.text.empty(); });
  if (!is_empty) return;
  fmt::print(stderr, "the model ended its answer at once, without text{}\n",
             options.chat.empty() ? "; to ask a chat model something, use --chat" : "");
}

absl::Status Run(const GenerateFlags& options, const Connection& connection, Interrupt& interrupt,
                 Canceller& canceller) {
  // A stream that can be resumed would go on without this process.
  interrupt.NoteFirst([&canceller] { canceller.Cancel(); });
  SC_ASSIGN_OR_RETURN(const std::unique_ptr<Client> client, Connect(connection));
  Completion completion;
  TextPrinter printer(options.sampling.n() <= 1, canceller);
  const auto on_piece = [&](const v1::GenerateResponse& piece) {
    completion.Add(piece);
    if (!options.json) printer.Print(piece);
  };
  const absl::Status status =
      options.chat.empty() ? client->Stream(MakeGenerateRequest(options), on_piece, &canceller)
                           : client->Stream(MakeChatRequest(options), on_piece, &canceller);
  if (!options.json) {
    printer.End(completion);
    if (status.ok()) ExplainEmpty(completion, options);
  } else if (status.ok()) {
    fmt::print("{}\n", JsonText(ToJson(completion, options.sampling)));
  }
  return status;
}

int Generate(const GenerateFlags& options) {
  Canceller canceller;
  Interrupt interrupt;  // before gRPC starts its threads
  const absl::Status status = WithServer(options.server, [&](const Connection& connection) {
    return Run(options, connection, interrupt, canceller);
  });
  if (interrupt.signal() != 0) return kExitBySignal + interrupt.signal();
  if (std::ferror(stdout) != 0) return kExitBySignal + SIGPIPE;
  if (status.ok()) return kExitOk;
  fmt::print(stderr, "error: {}\n", std::string(status.message()));
  return kExitError;
}

void AddPromptFlags(CLI::App& generate, GenerateFlags& options) {
  CLI::Option_group* prompt = generate.add_option_group("Prompt", "One of these");
  prompt->add_option("--prompt", options.prompt, "Text to continue")->type_name("TEXT");
  prompt->add_option("--prompt-ids", options.prompt_ids, "Token ids to continue")
      ->type_name("N,N...")
      ->delimiter(',')
      ->allow_extra_args(false);
  CLI::Option* chat = prompt
                          ->add_option("--chat", options.chat,
                                       "Message to answer through the model's chat template")
                          ->type_name("TEXT");
  prompt->require_option(1);
  generate.add_option("--system", options.system, "System message, for --chat")
      ->type_name("TEXT")
      ->needs(chat);
  generate.add_flag("--echo", options.echo, "Print the prompt's text before the answer")
      ->excludes(chat);
}

}  // namespace

void AddGenerate(CLI::App& app, Command& command) {
  auto options = std::make_shared<GenerateFlags>();
  CLI::App* generate = app.add_subcommand("generate", "Completes one prompt, and streams the text");
  generate->footer(kReconnectHelp);
  AddServerFlags(*generate, options->server);
  AddPromptFlags(*generate, *options);
  generate
      ->add_option("--priority", options->priority,
                   "Priority of the request. The server serves lower numbers first")
      ->type_name("N")
      ->capture_default_str();
  CLI::Option* json = generate->add_flag(
      "--json", options->json,
      "Print one JSON object at the end, with prompt_ids, token_ids, text, finish_reason, "
      "logprobs, prompt_logprobs, usage and timing. With --n above 1, it has a list \"choices\"");
  AddSamplingFlags(*generate, options->sampling);
  AddLogprobFlags(*generate, options->sampling);
  generate->get_option("--logprobs")->needs(json);
  generate->get_option("--prompt-logprobs")->needs(json);
  generate->callback([options, &command] { command = [options] { return Generate(*options); }; });
}

}  // namespace stagecoach::cli
