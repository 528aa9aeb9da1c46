// A conversation in the terminal, or with a program that writes one question per line.
#pragma once

#include <memory>
#include <string>

#include "cli/answer_printer.h"
#include "cli/chat_interrupts.h"
#include "cli/client.h"
#include "cli/completion.h"
#include "cli/conversation.h"
#include "cli/line_editor.h"

namespace CLI {
class App;
}

namespace stagecoach::cli {

struct ChatOptions {
  std::string system;
  v1::SamplingParams sampling;
  bool plain = false;   // no colours, and Markdown as it is written
  std::string history;  // file with earlier lines; empty: the history ends with the conversation
};

// Adds --system, --plain, --history and the sampling flags.
void AddChatFlags(CLI::App& app, ChatOptions& options);
// INVALID_ARGUMENT if the flags ask for several answers.
absl::Status CheckChatOptions(const ChatOptions& options);

class ChatSession {
 public:
  // All must outlive the session.
  ChatSession(const ChatOptions& options, const Client& client, ChatInterrupts& interrupts);

  // Reads questions and commands to the end of the input. Returns an exit code.
  int Run();
  // Asks one question. Returns an exit code.
  int AskOnce(const std::string& question);

 private:
  void Greet(const v1::Model& model) const;
  bool Take(const std::string& line);
  void Obey(const std::string& command, const std::string& argument);
  bool Answer(const std::string& question);
  absl::Status AskUntilItFits(Completion& completion, AnswerPrinter& printer);
  absl::Status Ask(Completion& completion, AnswerPrinter& printer);
  void ShowSpeed(const Completion& completion) const;
  void Dim(const std::string& line) const;

  const bool on_terminal_;
  const AnswerPrinter::Look look_;
  v1::SamplingParams sampling_;
  Conversation conversation_;
  ChatInterrupts& interrupts_;
  const Client& client_;
  const std::unique_ptr<LineEditor> lines_;
};

}  // namespace stagecoach::cli
