#include "router/frontend/http/message_fields.h"

#include <fmt/format.h>

#include <boost/json.hpp>
#include <string>
#include <utility>

#include "common/json_text.h"
#include "router/frontend/http/foreign_fields.h"

namespace stagecoach::router::http {
namespace {

namespace json = boost::json;

// Reads a string, or text parts, which are joined with line breaks.
void ReadContent(JsonFields& fields, v1::ChatMessage& message) {
  const json::value* content = fields.Any("content");
  if (content == nullptr) {
    // An assistant may have only tool calls, or was cut off while reasoning; a tool may have no
    // result.
    const bool may_be_silent = message.role() == "assistant" || message.role() == "tool";
    if (!may_be_silent) fields.Refuse("content", "is missing");
    return;
  }
  if (content->is_string()) return message.set_content(std::string(content->get_string()));
  if (!content->is_array()) {
    return fields.Refuse("content", fmt::format("must be a string or an array of parts, not {}",
                                                KindName(*content)));
  }
  std::string text;
  for (size_t i = 0; i < content->get_array().size(); ++i) {
    const json::value& part = content->get_array()[i];
    const std::string name = fmt::format("content[{}]", i);
    if (!part.is_object()) return fields.Refuse(name, "must be an object");
    JsonFields inner(part.get_object());
    const std::string type = inner.String("type").value_or("");
    if (type != "text") {
      return fields.Refuse(
          name + ".type",
          fmt::format("'{}' is not supported: this server accepts only text", type));
    }
    const auto piece = inner.String("text");
    if (!piece) return fields.Refuse(name + ".text", "must be a string");
    if (i > 0) text += '\n';
    text += *piece;
  }
  message.set_content(std::move(text));
}

// Reads {"id", "type": "function", "function": {"name", "arguments": JSON as text}}.
void ReadToolCall(JsonFields& fields, const std::string& path, v1::ToolCall& call) {
  call.set_id(fields.String("id").value_or(""));
  const std::string type = fields.String("type").value_or("function");
  if (type != "function") fields.Refuse("type", "must be \"function\"");
  const json::object* function = fields.Object("function");
  if (function == nullptr) return fields.Refuse("function", "is missing");
  JsonFields inner(*function, path + "function.");
  call.set_name(inner.String("name").value_or(""));
  const json::value* arguments = inner.Any("arguments");
  if (arguments != nullptr && arguments->is_object()) {  // some clients send an object
    call.set_arguments(JsonText(*arguments));
  } else {
    call.set_arguments(inner.String("arguments").value_or(""));
  }
  fields.Adopt(inner.status());
}

void ReadToolCalls(JsonFields& fields, const std::string& path, v1::ChatMessage& message) {
  const json::array* calls = fields.Array("tool_calls");
  if (calls == nullptr) return;
  for (size_t i = 0; i < calls->size(); ++i) {
    const std::string name = fmt::format("tool_calls[{}]", i);
    if (!(*calls)[i].is_object()) return fields.Refuse(name, "must be an object");
    const std::string inner_path = fmt::format("{}{}.", path, name);
    JsonFields inner((*calls)[i].get_object(), inner_path);
    ReadToolCall(inner, inner_path, *message.add_tool_calls());
    fields.Adopt(inner.status());
  }
}

void ReadMessage(JsonFields& fields, const std::string& path, v1::ChatMessage& message) {
  const std::string role = fields.String("role").value_or("");
  // "developer" is OpenAI's newer name; chat templates do not know it.
  message.set_role(role == "developer" ? "system" : role);
  if (role == "function") fields.Refuse("role", "is not offered by this server; use \"tool\"");
  RefuseForeignOfMessage(fields);
  message.set_name(fields.String("name").value_or(""));
  message.set_tool_call_id(fields.String("tool_call_id").value_or(""));
  for (const char* name : {"thinking", "reasoning", "reasoning_content"}) {
    if (const auto reasoning = fields.String(name)) message.set_reasoning(*reasoning);
  }
  ReadToolCalls(fields, path, message);
  ReadContent(fields, message);
}

void ReadToolChoice(JsonFields& fields, v1::ToolChoice& choice) {
  const json::value* value = fields.Any("tool_choice");
  if (value == nullptr) return;
  if (value->is_string()) {
    const json::string& mode = value->get_string();
    if (mode == "none") {
      choice.set_mode(v1::ToolChoice::NONE);
    } else if (mode == "required" || mode == "any") {  // "any" is Mistral's name
      choice.set_mode(v1::ToolChoice::REQUIRED);
    } else if (mode != "auto") {
      fields.Refuse("tool_choice", "must be \"auto\", \"none\", \"required\" or a function");
    }
    return;
  }
  const json::object* object = fields.Object("tool_choice");
  if (object == nullptr) return;
  JsonFields outer(*object, "tool_choice.");
  if (outer.String("type").value_or("") != "function") {
    outer.Refuse("type", "must be \"function\"");
  }
  const json::object* function = outer.Object("function");
  if (function == nullptr) {
    outer.Refuse("function", "is missing");
  } else {
    JsonFields inner(*function, "tool_choice.function.");
    const auto name = inner.String("name");
    if (!name) inner.Refuse("name", "is missing");
    outer.Adopt(inner.status());
    choice.set_mode(v1::ToolChoice::NAMED);
    choice.set_name(name.value_or(""));
  }
  fields.Adopt(outer.status());
}

}  // namespace

void ReadMessages(JsonFields& fields, v1::ChatRequest& chat) {
  const json::array* messages = fields.Array("messages");
  if (messages == nullptr) return fields.Refuse("messages", "is missing");
  for (size_t i = 0; i < messages->size(); ++i) {
    if (!(*messages)[i].is_object()) {
      return fields.Refuse(fmt::format("messages[{}]", i), "must be an object");
    }
    const std::string path = fmt::format("messages[{}].", i);
    JsonFields inner((*messages)[i].get_object(), path);
    ReadMessage(inner, path, *chat.add_messages());
    fields.Adopt(inner.status());
  }
}

void ReadTools(JsonFields& fields, v1::ChatRequest& chat) {
  const json::array* tools = fields.Array("tools");
  if (tools != nullptr && !tools->empty()) chat.set_tools(json::serialize(*tools));
  ReadToolChoice(fields, *chat.mutable_tool_choice());
  if (const auto parallel = fields.Bool("parallel_tool_calls")) {
    chat.set_parallel_tool_calls(*parallel);
  }
}

}  // namespace stagecoach::router::http
