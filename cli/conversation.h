// The messages of a conversation, which are sent with each question and can be saved to a file.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "stagecoach/v1/inference.pb.h"

namespace stagecoach::cli {

class Conversation {
 public:
  explicit Conversation(std::string system) { SetSystem(std::move(system)); }

  // Removes all messages except the system message.
  void Reset();
  // Replaces the system message for the following questions; empty: no system message.
  void SetSystem(std::string text);

  void Ask(std::string question) { Add("user", std::move(question)); }
  void Answer(std::string answer) { Add("assistant", std::move(answer)); }
  void TakeBackLast() { messages_.RemoveLast(); }
  // Removes the oldest question and all messages after it up to the next question. Returns false,
  // without removing anything, if only the newest question is left.
  bool ForgetOldest();

  int n_messages() const { return messages_.size(); }
  const google::protobuf::RepeatedPtrField<v1::ChatMessage>& messages() const { return messages_; }

  // Writes a JSON array of {"role", "content"}.
  absl::Status Save(const std::string& path) const;
  // Replaces the current messages.
  absl::Status Load(const std::string& path);

 private:
  void Add(const char* role, std::string content);
  bool has_system() const;

  google::protobuf::RepeatedPtrField<v1::ChatMessage> messages_;
};

}  // namespace stagecoach::cli
