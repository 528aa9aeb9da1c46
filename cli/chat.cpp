#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <csignal>
#include <cstdio>
#include <functional>
#include <iostream>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>

#include "cli/client.h"
#include "cli/command.h"
#include "cli/completion.h"
#include "cli/sampling_flags.h"
#include "common/process.h"

namespace stagecoach::cli {
namespace {

struct Options {
  std::string server = kDefaultServer;
  std::string system;
  v1::SamplingParams sampling;
};

// ctrl-C ends the answer being written; without one, it says how to leave. SIGTERM leaves.
class Interrupts {
 public:
  explicit Interrupts(std::function<void()> when_idle)
      : thread_([this, when_idle = std::move(when_idle)] {
          while (const int signal = signals_.Wait()) {
            if (signal == SIGTERM) std::_Exit(128 + SIGTERM);
            const std::lock_guard lock(mutex_);
            if (answer_ == nullptr) {
              when_idle();
            } else {
              answer_->TryCancel();
            }
          }
        }) {}
  ~Interrupts() {
    signals_.Interrupt();
    thread_.join();
  }

  // nullptr: no answer is being written.
  void SetAnswer(grpc::ClientContext* answer) {
    const std::lock_guard lock(mutex_);
    answer_ = answer;
  }

 private:
  ShutdownSignals signals_;
  std::mutex mutex_;
  grpc::ClientContext* answer_ = nullptr;  // guarded by mutex_
  std::thread thread_;
};

class Conversation {
 public:
  Conversation(const Options& options)
      : on_terminal_(isatty(STDIN_FILENO) && isatty(STDOUT_FILENO)),
        system_(options.system),
        interrupts_([this] {
          fmt::print("\n");
          Dim("/exit or ctrl-D ends");
          Prompt();
        }),
        client_(options.server) {
    *request_.mutable_sampling() = options.sampling;
    Reset();
  }

  int Run() {
    const absl::StatusOr<v1::Model> model = client_.GetModel();
    if (!model.ok()) {
      fmt::print(stderr, "error: {}\n", std::string(model.status().message()));
      return kExitError;
    }
    Dim(
        fmt::format("{}, context {} tokens; /reset starts anew, /exit or ctrl-D ends, ctrl-C stops "
                    "an answer",
                    model->id(), model->max_model_len()));
    int exit_code = kExitOk;
    Prompt();
    for (std::string line; std::getline(std::cin, line); Prompt()) {
      if (line == "/exit") return exit_code;
      if (line == "/reset") {
        Reset();
        Dim("a new conversation");
      } else if (line.find_first_not_of(" \t\r") != std::string::npos) {
        exit_code = Answer(line) ? kExitOk : kExitError;
      }
    }
    if (on_terminal_) fmt::print("\n");
    return exit_code;
  }

 private:
  void Reset() {
    request_.clear_messages();
    if (!system_.empty()) AddMessage("system", system_);
  }

  void AddMessage(const char* role, const std::string& content) {
    v1::ChatMessage& message = *request_.add_messages();
    message.set_role(role);
    message.set_content(content);
  }

  // False when there is no answer; the question is then taken back.
  bool Answer(const std::string& question) {
    AddMessage("user", question);
    grpc::ClientContext context;
    interrupts_.SetAnswer(&context);
    Completion completion;
    bool thinking = false;
    const absl::Status status =
        client_.Stream(context, request_, [&](const v1::GenerateResponse& piece) {
          completion.Add(piece);
          // It is shown; templates want the answer alone back.
          fmt::print("{}", piece.reasoning());
          thinking = thinking || !piece.reasoning().empty();
          if (!piece.text().empty() && std::exchange(thinking, false)) fmt::print("\n\n");
          fmt::print("{}", piece.text());
          std::fflush(stdout);
        });
    interrupts_.SetAnswer(nullptr);
    fmt::print("\n");
    const std::string text = completion.choices().empty() ? "" : completion.choices()[0].text;
    if (!status.ok() && !absl::IsCancelled(status)) {
      fmt::print(stderr, "error: {}\n", std::string(status.message()));
    }
    if (text.empty() && !status.ok()) {
      request_.mutable_messages()->RemoveLast();
      return absl::IsCancelled(status);
    }
    AddMessage("assistant", text);
    if (status.ok()) ShowSpeed(completion);
    return status.ok() || absl::IsCancelled(status);
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

  void Prompt() const {
    if (!on_terminal_) return;
    fmt::print("> ");
    std::fflush(stdout);
  }

  void Dim(const std::string& line) const {
    if (on_terminal_) fmt::print("\x1b[2m{}\x1b[0m\n", line);
  }

  const bool on_terminal_;
  const std::string system_;
  v1::ChatRequest request_;
  Interrupts interrupts_;  // before client_: signals are blocked before gRPC starts its threads
  const Client client_;
};

int Chat(const Options& options) { return Conversation(options).Run(); }

}  // namespace

void AddChat(CLI::App& app, Command& command) {
  auto options = std::make_shared<Options>();
  CLI::App* chat = app.add_subcommand("chat", "A conversation in the terminal");
  chat->add_option("--server", options->server, "Router to ask")
      ->type_name("HOST:PORT")
      ->capture_default_str();
  chat->add_option("--system", options->system, "System message")->type_name("TEXT");
  AddSamplingFlags(*chat, options->sampling);
  chat->callback([options, &command] { command = [options] { return Chat(*options); }; });
}

}  // namespace stagecoach::cli
