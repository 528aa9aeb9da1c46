// A conversation's messages: what is sent with each question, and kept in files.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "stagecoach/v1/inference.pb.h"

namespace stagecoach::cli {

class Conversation {
 public:
  explicit Conversation(std::string system) { SetSystem(std::move(system)); }

  // Forgets all but the system message.
  void Reset();
  // From here on; empty: none.
  void SetSystem(std::string text);

  void Ask(std::string question) { Add("user", std::move(question)); }
  void Answer(std::string answer) { Add("assistant", std::move(answer)); }
  void TakeBackLast() { messages_.RemoveLast(); }
  // Forgets the oldest question with what followed it, up to the next one. False: only the newest
  // is left.
  bool ForgetOldest();

  int n_messages() const { return messages_.size(); }
  const google::protobuf::RepeatedPtrField<v1::ChatMessage>& messages() const { return messages_; }

  // A JSON array of {"role", "content"}.
  absl::Status Save(const std::string& path) const;
  // In place of what there is.
  absl::Status Load(const std::string& path);

 private:
  void Add(const char* role, std::string content);
  bool has_system() const;

  google::protobuf::RepeatedPtrField<v1::ChatMessage> messages_;
};

}  // namespace stagecoach::cli
