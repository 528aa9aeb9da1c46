#include "cli/chat_session.h"

#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <cstdio>
#include <optional>
#include <vector>

#include "cli/chat_settings.h"
#include "cli/command.h"
#include "cli/history_file.h"
#include "cli/sampling_flags.h"
#include "cli/suggest.h"

namespace stagecoach::cli {
namespace {

constexpr char kHelp[] =
    "/reset          starts a new conversation\n"
    "/system TEXT    replaces the system message; without TEXT removes it\n"
    "/set NAME VALUE sets a sampling parameter; without VALUE, the default; /set lists all\n"
    "/save FILE      saves the conversation; /load FILE continues it\n"
    "/exit           ends the program, like ctrl-D\n"
    "A line that begins with // is sent with one / less. Alt-Enter starts a new line, and pasted\n"
    "text is one message. ctrl-C stops an answer.";
constexpr std::array kCommands = {"/help", "/reset", "/system", "/set", "/save", "/load", "/exit"};

// The editor on a terminal, which keeps its history in a file.
std::unique_ptr<LineEditor> MakeEditor(bool on_terminal, const std::string& history) {
  return on_terminal ? MakeTerminalEditor("> ", history) : MakePlainReader();
}

std::string UnknownCommand(const std::string& command) {
  const std::vector<std::string> known(kCommands.begin(), kCommands.end());
  const std::string nearest = Nearest(command, known);
  return fmt::format(
      "unknown command {}; {}", command,
      nearest.empty() ? "/help lists the commands" : fmt::format("did you mean {}?", nearest));
}

}  // namespace

void AddChatFlags(CLI::App& app, ChatOptions& options) {
  app.add_option("--system", options.system, "System message")->type_name("TEXT");
  app.add_flag("--plain", options.plain,
               "Print without colours, and print Markdown as the model writes it. This is the "
               "default without a terminal");
  options.history = DefaultHistoryPath();
  app.add_option_function<std::string>(
         "--history",
         [&options](const std::string& path) { options.history = path == "off" ? "" : path; },
         "File for the history of typed lines, which later conversations can recall. off: no "
         "history")
      ->type_name("FILE")
      ->default_str(options.history.empty() ? "off" : options.history);
  AddSamplingFlags(app, options.sampling);
}

absl::Status CheckChatOptions(const ChatOptions& options) {
  if (options.sampling.n() <= 1) return absl::OkStatus();
  return absl::InvalidArgumentError(fmt::format(
      "--n {}: a conversation can continue with only one answer", options.sampling.n()));
}

ChatSession::ChatSession(const ChatOptions& options, const Client& client,
                         ChatInterrupts& interrupts)
    : on_terminal_(isatty(STDIN_FILENO) == 1 && isatty(STDOUT_FILENO) == 1),
      look_(AnswerPrinter::LookOf(isatty(STDOUT_FILENO) == 1, options.plain)),
      sampling_(options.sampling),
      conversation_(options.system),
      interrupts_(interrupts),
      client_(client),
      lines_(MakeEditor(on_terminal_, options.history)) {}

void ChatSession::Greet(const v1::Model& model) const {
  std::string greeting = model.id();
  if (model.max_model_len() > 0) {
    greeting += fmt::format(", context {} tokens", model.max_model_len());
  }
  Dim(greeting + "; /help lists the commands, ctrl-D ends");
}

int ChatSession::Run() {
  const absl::StatusOr<v1::Model> model = client_.GetModel();
  if (!model.ok()) {
    fmt::print(stderr, "error: {}\n", std::string(model.status().message()));
    return kExitError;
  }
  Greet(*model);
  if (on_terminal_) interrupts_.SetWhenIdle([this] { lines_->Interrupt(); });
  int exit_code = kExitOk;
  while (const std::optional<LineEditor::Line> line = lines_->Read()) {
    if (line->interrupted) {
      fmt::print("\n");
      Dim("use /exit or ctrl-D to end");
    } else if (line->text == "/exit") {
      return exit_code;
    } else if (line->text.find_first_not_of(" \t\r\n") != std::string::npos) {
      exit_code = Take(line->text) ? kExitOk : kExitError;
    }
  }
  if (on_terminal_) fmt::print("\n");
  return exit_code;
}

int ChatSession::AskOnce(const std::string& question) {
  return Answer(question) ? kExitOk : kExitError;
}

// Handles a command or a question. Returns false if it failed.
bool ChatSession::Take(const std::string& line) {
  if (line == "/reset") {
    conversation_.Reset();
    Dim("a new conversation");
    return true;
  }
  // If a program writes the input, every line except /reset and /exit is a question.
  if (!on_terminal_ || !line.starts_with('/')) return Answer(line);
  if (line.starts_with("//")) return Answer(line.substr(1));
  const size_t space = std::min(line.find(' '), line.size());
  Obey(line.substr(0, space), line.substr(std::min(space + 1, line.size())));
  return true;
}

void ChatSession::Obey(const std::string& command, const std::string& argument) {
  if (command == "/help") {
    Dim(kHelp);
  } else if (command == "/system") {
    conversation_.SetSystem(argument);
    Dim(argument.empty() ? "no system message" : "the system message is set");
  } else if (command == "/set" && argument.empty()) {
    Dim(SettingsText(sampling_));
  } else if (command == "/set") {
    const absl::Status status = ChangeSetting(argument, sampling_);
    Dim(status.ok() ? "from the next answer on" : std::string(status.message()));
  } else if (command == "/save" || command == "/load") {
    const absl::Status status =
        command == "/save" ? conversation_.Save(argument) : conversation_.Load(argument);
    Dim(status.ok() ? fmt::format("{} messages", conversation_.n_messages())
                    : std::string(status.message()));
  } else {
    Dim(UnknownCommand(command));
  }
}

// Returns false on failure. If there is no answer, the question is removed from the conversation.
bool ChatSession::Answer(const std::string& question) {
  conversation_.Ask(question);
  Completion completion;
  AnswerPrinter printer(look_);
  const absl::Status status = AskUntilItFits(completion, printer);
  const std::string text = completion.choices().empty() ? "" : completion.choices()[0].text;
  if (!status.ok() && !absl::IsCancelled(status)) {
    fmt::print(stderr, "error: {}\n", std::string(status.message()));
  }
  if (text.empty() && !status.ok()) {
    conversation_.TakeBackLast();
    return absl::IsCancelled(status);
  }
  conversation_.Answer(text);
  if (status.ok()) ShowSpeed(completion);
  return status.ok() || absl::IsCancelled(status);
}

// Drops the oldest messages as long as the conversation exceeds the model's context.
absl::Status ChatSession::AskUntilItFits(Completion& completion, AnswerPrinter& printer) {
  int n_forgotten = 0;
  while (true) {
    const int n_before = conversation_.n_messages();
    const absl::Status status = Ask(completion, printer);
    const bool is_too_long =
        status.message().find("maximum context length") != absl::string_view::npos;
    if (!is_too_long || !conversation_.ForgetOldest()) {
      printer.End();
      if (n_forgotten > 0 && status.ok()) {
        Dim(fmt::format("the oldest {} messages no longer fit and were left out", n_forgotten));
      }
      return status;
    }
    n_forgotten += n_before - conversation_.n_messages();
  }
}

// The reasoning is not part of the stored answer: chat templates expect earlier answers without it.
absl::Status ChatSession::Ask(Completion& completion, AnswerPrinter& printer) {
  v1::ChatRequest request;
  *request.mutable_messages() = conversation_.messages();
  *request.mutable_sampling() = sampling_;
  Canceller canceller;
  interrupts_.SetAnswer(&canceller);
  const absl::Status status = client_.Stream(
      request,
      [&](const v1::GenerateResponse& piece) {
        completion.Add(piece);
        printer.Show(piece);
      },
      &canceller);
  interrupts_.SetAnswer(nullptr);
  return status;
}

void ChatSession::ShowSpeed(const Completion& completion) const {
  const uint32_t n_tokens = completion.usage().completion_tokens();
  const double decode_ms = completion.timing().total_ms() - completion.timing().ttft_ms();
  std::string line =
      fmt::format("{} tokens, TTFT {:.0f} ms", n_tokens, completion.timing().ttft_ms());
  if (n_tokens > 1 && decode_ms > 0) {
    line += fmt::format(", {:.1f} tokens/s", (n_tokens - 1) * 1000 / decode_ms);
  }
  Dim(line);
}

// A message of this program, shown only on a terminal.
void ChatSession::Dim(const std::string& line) const {
  if (!on_terminal_) return;
  fmt::print("{}{}{}\n", look_.has_style ? "\x1b[2m" : "", line, look_.has_style ? "\x1b[0m" : "");
  std::fflush(stdout);
}

}  // namespace stagecoach::cli
