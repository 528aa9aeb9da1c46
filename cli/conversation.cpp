#include "cli/conversation.h"

#include <fmt/format.h>

#include <boost/json.hpp>
#include <fstream>
#include <iterator>
#include <utility>

namespace stagecoach::cli {
namespace {

namespace json = boost::json;

constexpr char kSystem[] = "system";

}  // namespace

bool Conversation::has_system() const {
  return !messages_.empty() && messages_[0].role() == kSystem;
}

void Conversation::Add(const char* role, std::string content) {
  v1::ChatMessage& message = *messages_.Add();
  message.set_role(role);
  message.set_content(std::move(content));
}

void Conversation::Reset() {
  messages_.DeleteSubrange(has_system(), messages_.size() - has_system());
}

void Conversation::SetSystem(std::string text) {
  if (has_system()) messages_.DeleteSubrange(0, 1);
  if (text.empty()) return;
  Add(kSystem, std::move(text));
  for (int i = messages_.size() - 1; i > 0; --i) messages_.SwapElements(i, i - 1);
}

bool Conversation::ForgetOldest() {
  const int first = has_system();
  int next = first + 1;
  while (next < messages_.size() && messages_[next].role() != "user") ++next;
  if (next >= messages_.size()) return false;
  messages_.DeleteSubrange(first, next - first);
  return true;
}

absl::Status Conversation::Save(const std::string& path) const {
  json::array array;
  for (const v1::ChatMessage& message : messages_) {
    array.push_back(json::object{{"role", message.role()}, {"content", message.content()}});
  }
  std::ofstream file(path);
  file << json::serialize(array) << '\n';
  file.close();
  if (file) return absl::OkStatus();
  return absl::InvalidArgumentError(fmt::format("{}: cannot be written", path));
}

absl::Status Conversation::Load(const std::string& path) {
  std::ifstream file(path);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  boost::system::error_code error;
  const json::value parsed = json::parse(text, error);
  const auto wrong = [&path] {
    return absl::InvalidArgumentError(
        fmt::format("{}: is no file of /save, a JSON array of {{\"role\", \"content\"}}", path));
  };
  if (!file.is_open() || error || !parsed.is_array()) return wrong();
  google::protobuf::RepeatedPtrField<v1::ChatMessage> messages;
  for (const json::value& value : parsed.get_array()) {
    const json::object* object = value.if_object();
    const json::value* role = object == nullptr ? nullptr : object->if_contains("role");
    const json::value* content = object == nullptr ? nullptr : object->if_contains("content");
    if (role == nullptr || content == nullptr || !role->is_string() || !content->is_string()) {
      return wrong();
    }
    v1::ChatMessage& message = *messages.Add();
    message.set_role(std::string(role->get_string()));
    message.set_content(std::string(content->get_string()));
  }
  messages_.Swap(&messages);
  return absl::OkStatus();
}

}  // namespace stagecoach::cli
