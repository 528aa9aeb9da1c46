#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <csignal>
#include <cstdio>
#include <functional>
#include <memory>
#include <string_view>
#include <thread>
#include <utility>

#include "cli/client.h"
#include "cli/command.h"
#include "cli/completion.h"
#include "cli/conversation.h"
#include "cli/line_editor.h"
#include "cli/sampling_flags.h"
#include "cli/style.h"
#include "common/mutex.h"
#include "common/process.h"
#include "common/status.h"

namespace stagecoach::cli {
namespace {

constexpr char kHelp[] =
    "/reset          starts a new conversation\n"
    "/system TEXT    replaces the system message; without TEXT removes it\n"
    "/save FILE      saves the conversation; /load FILE continues it\n"
    "/exit           ends the program, like ctrl-D\n"
    "A line that begins with // is sent with one / less. Alt-Enter starts a new line, and pasted\n"
    "text is one message. ctrl-C stops an answer.";

struct ChatFlags {
  Connection connection;
  std::string system;
  v1::SamplingParams sampling;
};

// ctrl-C stops the answer that is being printed; if there is none, it discards the line being
// typed. SIGTERM ends the program.
class Interrupts {
 public:
  // answer_->Cancel() and when_idle_() are called on this object's thread, so they must be
  // thread-safe.
  Interrupts()
      : thread_([this] {
          while (const int signal = signals_.Wait()) {
            const MutexLock lock(mutex_);
            if (signal == SIGTERM || (answer_ == nullptr && !when_idle_)) {
              std::_Exit(kExitBySignal + signal);
            }
            if (answer_ != nullptr) {
              answer_->Cancel();
            } else {
              when_idle_();
            }
          }
        }) {}
  ~Interrupts() {
    signals_.Interrupt();
    thread_.join();
  }

  // An empty function: ctrl-C ends the program.
  void SetWhenIdle(std::function<void()> when_idle) {
    const MutexLock lock(mutex_);
    when_idle_ = std::move(when_idle);
  }
  // nullptr: no answer is being written.
  void SetAnswer(Canceller* answer) {
    const MutexLock lock(mutex_);
    answer_ = answer;
  }

 private:
  ShutdownSignals signals_;
  Mutex mutex_;
  Canceller* answer_ ABSL_GUARDED_BY(mutex_) = nullptr;
  std::function<void()> when_idle_ ABSL_GUARDED_BY(mutex_);
  std::thread thread_;
};

class Chat {
 public:
  Chat(const ChatFlags& options, const Client& client, Interrupts& interrupts)
      : on_terminal_(isatty(STDIN_FILENO) == 1 && isatty(STDOUT_FILENO) == 1),
        has_style_(HasStyle(STDOUT_FILENO)),
        sampling_(options.sampling),
        conversation_(options.system),
        interrupts_(interrupts),
        client_(client),
        lines_(on_terminal_ ? MakeTerminalEditor("> ") : MakePlainReader()) {}

  int Run() {
    const absl::StatusOr<v1::Model> model = client_.GetModel();
    if (!model.ok()) {
      fmt::print(stderr, "error: {}\n", std::string(model.status().message()));
      return kExitError;
    }
    std::string greeting = model->id();
    if (model->max_model_len() > 0) {
      greeting += fmt::format(", context {} tokens", model->max_model_len());
    }
    Dim(greeting + "; /help lists the commands, ctrl-D ends");
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

 private:
  // Handles a command or a question. Returns false if it failed.
  bool Take(const std::string& line) {
    if (line == "/reset") {
      conversation_.Reset();
      Dim("a new conversation");
      return true;
    }
    // If a program writes the input, every line except /reset and /exit is a question.
    if (!on_terminal_ || !line.starts_with('/')) return Answer(line);
    if (line.starts_with("//")) return Answer(line.substr(1));
    const size_t space = std::min(line.find(' '), line.size());
    const std::string_view command = std::string_view(line).substr(0, space);
    const std::string argument = line.substr(std::min(space + 1, line.size()));
    if (command == "/help") {
      Dim(kHelp);
    } else if (command == "/system") {
      conversation_.SetSystem(argument);
      Dim(argument.empty() ? "no system message" : "the system message is set");
    } else if (command == "/save" || command == "/load") {
      const absl::Status status =
          command == "/save" ? conversation_.Save(argument) : conversation_.Load(argument);
      Dim(status.ok() ? fmt::format("{} messages", conversation_.n_messages())
                      : std::string(status.message()));
    } else {
      Dim(fmt::format("unknown command {}; /help lists the commands", command));
    }
    return true;
  }

  // Returns false on failure. If there is no answer, the question is removed from the conversation.
  bool Answer(const std::string& question) {
    conversation_.Ask(question);
    Completion completion;
    const absl::Status status = AskUntilItFits(completion);
    EndThinking();
    fmt::print("\n");
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
  absl::Status AskUntilItFits(Completion& completion) {
    int n_forgotten = 0;
    while (true) {
      const int n_before = conversation_.n_messages();
      const absl::Status status = AskOnce(completion);
      const bool is_too_long =
          status.message().find("maximum context length") != absl::string_view::npos;
      if (!is_too_long || !conversation_.ForgetOldest()) {
        if (n_forgotten > 0 && status.ok()) {
          fmt::print("\n");
          Dim(fmt::format("the oldest {} messages no longer fit and were left out", n_forgotten));
        }
        return status;
      }
      n_forgotten += n_before - conversation_.n_messages();
    }
  }

  absl::Status AskOnce(Completion& completion) {
    v1::ChatRequest request;
    *request.mutable_messages() = conversation_.messages();
    *request.mutable_sampling() = sampling_;
    Canceller canceller;
    interrupts_.SetAnswer(&canceller);
    const absl::Status status = client_.Stream(
        request, [&](const v1::GenerateResponse& piece) { Show(piece, completion); }, &canceller);
    interrupts_.SetAnswer(nullptr);
    return status;
  }

  // The reasoning is shown only on a terminal and is not part of the stored answer: chat templates
  // expect earlier answers without reasoning.
  void Show(const v1::GenerateResponse& piece, Completion& completion) {
    completion.Add(piece);
    if (on_terminal_ && !piece.reasoning().empty()) {
      if (!std::exchange(is_thinking_, true))
        fmt::print("{}", has_style_ ? "\x1b[2m" : "[thinking]\n");
      fmt::print("{}", piece.reasoning());
    }
    if (!piece.text().empty()) {
      EndThinking();
      fmt::print("{}", piece.text());
    }
    std::fflush(stdout);
  }

  void EndThinking() {
    if (std::exchange(is_thinking_, false)) {
      fmt::print("{}\n\n", has_style_ ? "\x1b[0m" : "\n[answer]");
    }
  }

  void ShowSpeed(const Completion& completion) {
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
  void Dim(const std::string& line) const {
    if (!on_terminal_) return;
    fmt::print("{}{}{}\n", has_style_ ? "\x1b[2m" : "", line, has_style_ ? "\x1b[0m" : "");
    std::fflush(stdout);
  }

  const bool on_terminal_;
  const bool has_style_;
  const v1::SamplingParams sampling_;
  Conversation conversation_;
  Interrupts& interrupts_;
  const Client& client_;
  const std::unique_ptr<LineEditor> lines_;
  bool is_thinking_ = false;
};

int RunChat(const ChatFlags& options) {
  if (options.sampling.n() > 1) {
    fmt::print(stderr, "error: --n {}: a conversation can continue with only one answer\n",
               options.sampling.n());
    return kExitUsage;
  }
  Interrupts interrupts;  // blocks signals before gRPC starts its threads
  const absl::StatusOr<std::unique_ptr<Client>> client = Connect(options.connection);
  if (!client.ok()) {
    fmt::print(stderr, "error: {}\n", std::string(client.status().message()));
    return kExitError;
  }
  Chat chat(options, **client, interrupts);
  const int exit_code = chat.Run();
  interrupts.SetWhenIdle(nullptr);
  return exit_code;
}

}  // namespace

void AddChat(CLI::App& app, Command& command) {
  auto options = std::make_shared<ChatFlags>();
  CLI::App* chat =
      app.add_subcommand("chat",
                         "A conversation in the terminal. If standard input is not a terminal, "
                         "each of its lines is a question, except /reset and /exit");
  chat->footer(kReconnectHelp);
  AddConnectionFlags(*chat, options->connection);
  chat->add_option("--system", options->system, "System message")->type_name("TEXT");
  AddSamplingFlags(*chat, options->sampling);
  chat->callback([options, &command] { command = [options] { return RunChat(*options); }; });
}

}  // namespace stagecoach::cli
