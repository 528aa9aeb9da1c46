#include "router/frontend/http/anthropic/conversation.h"

#include <fmt/format.h>

#include <boost/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "common/json_text.h"
#include "router/frontend/http/dropped.h"

namespace stagecoach::router::http {
namespace {

namespace json = boost::json;

constexpr std::string_view kBilling = "x-anthropic-billing-header:";

std::string_view WithoutBilling(std::string_view text) {
  while (text.starts_with(kBilling)) {
    text.remove_prefix(std::min(text.find('\n'), text.size() - 1) + 1);
  }
  return text;
}

// Texts that become one, as the text parts of a chat completion do.
class JoinedText {
 public:
  void Add(std::string_view text) {
    if (text_) *text_ += '\n';
    text_ = std::move(text_).value_or("") += text;
  }
  // Absent: nothing was added since.
  std::optional<std::string> Take() { return std::exchange(text_, std::nullopt); }

 private:
  std::optional<std::string> text_;
};

void AddMessage(const char* role, std::optional<std::string> content, v1::ChatRequest& chat) {
  if (!content) return;
  v1::ChatMessage& message = *chat.add_messages();
  message.set_role(role);
  message.set_content(*std::move(content));
}

std::string TextOf(JsonFields& block) {
  auto text = block.String("text");
  if (!text) block.Refuse("text", "is missing");
  return std::move(text).value_or("");
}

void RefuseType(JsonFields& block, const std::string& type) {
  block.Refuse("type",
               type.empty()
                   ? "is missing"
                   : fmt::format("'{}' is not supported: this server accepts only text", type));
}

// Reads the blocks of the array `name`, each with `read`, which gets the fields of a block, their
// path and the type.
template <typename Read>
void ReadBlocks(JsonFields& fields, const std::string& path, const char* name, Read read) {
  const json::value* value = fields.Any(name);
  if (value == nullptr) return;
  const json::array* blocks = value->if_array();
  if (blocks == nullptr) {
    return fields.Refuse(
        name, fmt::format("must be a string or an array of blocks, not {}", KindName(*value)));
  }
  for (size_t i = 0; i < blocks->size(); ++i) {
    const std::string place = fmt::format("{}[{}]", name, i);
    const json::object* block = (*blocks)[i].if_object();
    if (block == nullptr) return fields.Refuse(place, "must be an object");
    const std::string inner_path = fmt::format("{}{}.", path, place);
    JsonFields inner(*block, inner_path);
    if (inner.Any("cache_control") != nullptr) NoteDropped("cache_control in messages");
    read(inner, inner_path, inner.String("type").value_or(""));
    fields.Adopt(inner.status());
  }
}

// Reads a system prompt: a text, or blocks of text. Absent: there is none.
std::optional<std::string> ReadSystem(JsonFields& fields, const std::string& path,
                                      const char* name) {
  JoinedText joined;
  const auto add = [&joined](std::string_view text) {
    const std::string_view rest = WithoutBilling(text);
    if (rest.empty() && !text.empty()) return;  // it was nothing else
    joined.Add(rest);
  };
  const json::value* value = fields.Any(name);
  if (value == nullptr) return std::nullopt;
  if (value->is_string()) {
    add(value->get_string());
  } else {
    ReadBlocks(fields, path, name,
               [&](JsonFields& block, const std::string&, const std::string& type) {
                 if (type != "text") return RefuseType(block, type);
                 add(TextOf(block));
               });
  }
  return joined.Take();
}

std::optional<std::string> ReadResultContent(JsonFields& fields, const std::string& path,
                                             DeferredTools& deferred) {
  const json::value* content = fields.Any("content");
  if (content == nullptr) return std::nullopt;
  if (content->is_string()) return std::string(content->get_string());
  JoinedText joined;
  ReadBlocks(fields, path, "content",
             [&](JsonFields& block, const std::string&, const std::string& type) {
               if (type == "text") {
                 joined.Add(TextOf(block));
               } else if (type == "tool_reference") {
                 joined.Add(deferred.Load(block.String("tool_name").value_or("")));
               } else if (type == "image" || type == "document") {
                 joined.Add(TextInsteadOf(type));
               } else {
                 RefuseType(block, type);
               }
             });
  return joined.Take();
}

void ReadToolResult(JsonFields& block, const std::string& path, DeferredTools& deferred,
                    v1::ChatRequest& chat) {
  v1::ChatMessage& message = *chat.add_messages();
  message.set_role("tool");
  message.set_tool_call_id(block.String("tool_use_id").value_or(""));
  if (message.tool_call_id().empty()) block.Refuse("tool_use_id", "is missing");
  if (auto text = ReadResultContent(block, path, deferred)) {
    message.set_content(*std::move(text));
  }
}

void ReadUserTurn(JsonFields& fields, const std::string& path, DeferredTools& deferred,
                  v1::ChatRequest& chat) {
  JoinedText text;
  ReadBlocks(fields, path, "content",
             [&](JsonFields& block, const std::string& inner_path, const std::string& type) {
               if (type == "text") return text.Add(TextOf(block));
               if (type != "tool_result") return RefuseType(block, type);
               AddMessage("user", text.Take(), chat);
               ReadToolResult(block, inner_path, deferred, chat);
             });
  AddMessage("user", text.Take(), chat);
}

void ReadToolUseBlock(JsonFields& block, v1::ToolCall& call) {
  call.set_id(block.String("id").value_or(""));
  call.set_name(block.String("name").value_or(""));
  if (call.name().empty()) block.Refuse("name", "is missing");
  if (const json::object* input = block.Object("input")) call.set_arguments(JsonText(*input));
}

void ReadAssistantTurn(JsonFields& fields, const std::string& path, v1::ChatMessage& message) {
  ReadBlocks(fields, path, "content",
             [&](JsonFields& block, const std::string&, const std::string& type) {
               if (type == "text") {
                 message.mutable_content()->append(TextOf(block));
               } else if (type == "thinking") {
                 message.mutable_reasoning()->append(block.String("thinking").value_or(""));
               } else if (type == "tool_use") {
                 ReadToolUseBlock(block, *message.add_tool_calls());
               } else if (type == "image" || type == "document" || type.empty()) {
                 RefuseType(block, type);
               } else {
                 // What another server has added to an answer: redacted thinking, searches.
                 NoteDropped(fmt::format("a block of the type '{}'", type));
               }
             });
}

void ReadTurn(JsonFields& fields, const std::string& path, DeferredTools& deferred,
              v1::ChatRequest& chat) {
  const std::string role = fields.String("role").value_or("");
  const json::value* content = fields.Any("content");
  if (role != "user" && role != "assistant" && role != "system") {
    return fields.Refuse("role", R"(must be "user", "assistant" or "system")");
  }
  if (content == nullptr) return fields.Refuse("content", "is missing");
  if (role == "system") {
    AddMessage("system", ReadSystem(fields, path, "content"), chat);
  } else if (content->is_string()) {
    AddMessage(role.c_str(), std::string(content->get_string()), chat);
  } else if (role == "user") {
    ReadUserTurn(fields, path, deferred, chat);
  } else {
    v1::ChatMessage& message = *chat.add_messages();
    message.set_role(role);
    ReadAssistantTurn(fields, path, message);
  }
}

bool EndsWithOpenText(const v1::ChatRequest& chat) {
  if (chat.messages().empty()) return false;
  const v1::ChatMessage& last = *chat.messages().rbegin();
  return last.role() == "assistant" && !last.content().empty() && last.tool_calls().empty();
}

}  // namespace

void ReadConversation(JsonFields& fields, DeferredTools& deferred, v1::ChatRequest& chat) {
  AddMessage("system", ReadSystem(fields, "", "system"), chat);
  const json::array* messages = fields.Array("messages");
  if (messages == nullptr) return fields.Refuse("messages", "is missing");
  for (size_t i = 0; i < messages->size(); ++i) {
    const json::object* message = (*messages)[i].if_object();
    if (message == nullptr) {
      return fields.Refuse(fmt::format("messages[{}]", i), "must be an object");
    }
    const std::string path = fmt::format("messages[{}].", i);
    JsonFields inner(*message, path);
    ReadTurn(inner, path, deferred, chat);
    fields.Adopt(inner.status());
  }
  if (messages->empty()) fields.Refuse("messages", "is empty");
  chat.set_continue_final_message(EndsWithOpenText(chat));
}

}  // namespace stagecoach::router::http
