#include "router/frontend/http/responses/input_items.h"

#include <fmt/format.h>

#include <boost/json.hpp>
#include <string>
#include <utility>

#include "router/frontend/http/dropped.h"
#include "router/frontend/http/responses/responses_form.h"

namespace stagecoach::router::http {
namespace {

namespace json = boost::json;

// Reads a text, or parts of text, which are joined with line breaks.
// `of_tool`: a note takes the place of what is no text.
std::string ReadParts(JsonFields& fields, const std::string& path, const char* name,
                      bool of_tool = false) {
  const json::value* value = fields.Any(name);
  if (value == nullptr) return "";
  if (value->is_string()) return std::string(value->get_string());
  const json::array* parts = fields.Array(name);
  std::string joined;
  for (size_t i = 0; parts != nullptr && i < parts->size(); ++i) {
    const std::string place = fmt::format("{}[{}]", name, i);
    const json::object* part = (*parts)[i].if_object();
    if (part == nullptr) {
      fields.Refuse(place, "must be an object");
      break;
    }
    JsonFields inner(*part, fmt::format("{}{}.", path, place));
    const std::string type = inner.String("type").value_or("");
    const bool is_note = of_tool && (type == "input_image" || type == "input_file");
    const auto text =
        is_note ? TextInsteadOf(type) : inner.String(type == "refusal" ? "refusal" : "text");
    if (type != "refusal" && !type.ends_with("text") && !is_note) {
      inner.Refuse("type",
                   fmt::format("'{}' is not supported: this server accepts only text", type));
    }
    if (!text) inner.Refuse("text", "is missing");
    fields.Adopt(inner.status());
    if (i > 0) joined += '\n';
    joined += text.value_or("");
  }
  return joined;
}

class InputReader {
 public:
  explicit InputReader(v1::ChatRequest& chat) : chat_(chat) {}

  void ReadItem(JsonFields& fields, const std::string& path) {
    const std::string type = fields.String("type").value_or("message");
    if (type == "message") {
      ReadMessageItem(fields, path);
    } else if (type == "function_call") {
      ReadCall(fields);
    } else if (type == "function_call_output") {
      v1::ChatMessage& message = Add("tool");
      message.set_tool_call_id(fields.String("call_id").value_or(""));
      if (message.tool_call_id().empty()) fields.Refuse("call_id", "is missing");
      message.set_content(ReadParts(fields, path, "output", /*of_tool=*/true));
    } else if (type == "reasoning") {
      ReadReasoningItem(fields, path);
    } else if (type == "item_reference") {
      fields.Refuse("type",
                    "'item_reference' is not offered by this server: send the item itself, or "
                    "previous_response_id");
    } else {
      // What another server has added to an answer, such as searches.
      NoteDropped(fmt::format("an item of the type '{}'", type));
    }
  }

 private:
  v1::ChatMessage& Add(const std::string& role) {
    v1::ChatMessage& message = *chat_.add_messages();
    message.set_role(role);
    return message;
  }
  // The assistant's message that the last items belong to, or a new one.
  v1::ChatMessage& Open() {
    const int n = chat_.messages_size();
    const bool is_open = n > 0 && chat_.messages(n - 1).role() == "assistant";
    return is_open ? *chat_.mutable_messages(n - 1) : Add("assistant");
  }

  void ReadMessageItem(JsonFields& fields, const std::string& path) {
    const std::string role = fields.String("role").value_or("");
    if (fields.Any("content") == nullptr) fields.Refuse("content", "is missing");
    std::string text = ReadParts(fields, path, "content");
    if (role == "assistant") {
      v1::ChatMessage& open = Open();
      const bool is_new = open.has_content() || !open.tool_calls().empty();
      (is_new ? Add(role) : open).set_content(std::move(text));
    } else if (role == "user" || role == "system" || role == "developer") {
      // "developer" is OpenAI's newer name; chat templates do not know it.
      Add(role == "developer" ? "system" : role).set_content(std::move(text));
    } else {
      fields.Refuse("role", R"(must be "user", "assistant", "system" or "developer")");
    }
  }

  void ReadCall(JsonFields& fields) {
    v1::ToolCall& call = *Open().add_tool_calls();
    call.set_id(fields.String("call_id").value_or(""));
    call.set_name(fields.String("name").value_or(""));
    if (const auto space = fields.String("namespace"); space && !call.name().empty()) {
      call.set_name(NameInNamespace(*space, call.name()));
    }
    call.set_arguments(fields.String("arguments").value_or(""));
    if (call.name().empty()) fields.Refuse("name", "is missing");
  }

  void ReadReasoningItem(JsonFields& fields, const std::string& path) {
    if (fields.Any("encrypted_content") != nullptr) {
      NoteDropped("encrypted_content of reasoning");
    }
    const json::array* content = fields.Array("content");
    const bool has_content = content != nullptr && !content->empty();
    const std::string text = ReadParts(fields, path, has_content ? "content" : "summary");
    if (text.empty()) return;
    v1::ChatMessage& open = Open();
    const bool is_new = open.has_content() || !open.tool_calls().empty();
    (is_new ? Add("assistant") : open).mutable_reasoning()->append(text);
  }

  v1::ChatRequest& chat_;
};

}  // namespace

void ReadInput(JsonFields& fields, v1::ChatRequest& chat) {
  const json::value* input = fields.Any("input");
  if (input == nullptr) return fields.Refuse("input", "is missing");
  if (input->is_string()) {
    v1::ChatMessage& message = *chat.add_messages();
    message.set_role("user");
    message.set_content(std::string(input->get_string()));
    return;
  }
  const json::array* items = input->if_array();
  if (items == nullptr) {
    return fields.Refuse(
        "input", fmt::format("must be a string or an array of items, not {}", KindName(*input)));
  }
  InputReader reader(chat);
  for (size_t i = 0; i < items->size(); ++i) {
    const json::object* item = (*items)[i].if_object();
    if (item == nullptr) return fields.Refuse(fmt::format("input[{}]", i), "must be an object");
    const std::string path = fmt::format("input[{}].", i);
    JsonFields inner(*item, path);
    reader.ReadItem(inner, path);
    fields.Adopt(inner.status());
  }
}

}  // namespace stagecoach::router::http
