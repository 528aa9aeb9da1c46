#include "router/text/chat_messages.h"

#include <fmt/format.h>

#include <boost/json.hpp>
#include <new>

#include "common/status.h"
#include "common/text/utf8.h"
#include "router/text/client_json.h"
#include "router/text/tool_call_ids.h"

namespace stagecoach::router {
namespace {

namespace json = boost::json;

// Together with the levels around it, below the limit of the template's JSON reader.
constexpr size_t kMaxArgumentsDepth = 100;

// Whether templates leave out the content of a call's message that is null, and do not write
// "None".
bool KnowsNull(ToolFamily family) {
  return family != ToolFamily::kHarmony && family != ToolFamily::kGlm &&
         family != ToolFamily::kMiniMax;
}

// Writes the messages of one conversation. One thread at a time.
class MessageWriter {
 public:
  MessageWriter(const MessageForm& form, OddValues odd, const json::storage_ptr& memory)
      : form_(form), odd_(odd), memory_(memory), ids_(form.family) {}

  absl::StatusOr<json::object> Message(const v1::ChatMessage& message, const std::string& place);
  bool has_odd_values() const { return has_odd_values_; }

 private:
  json::value Arguments(const std::string& text);
  absl::StatusOr<json::object> Call(const v1::ToolCall& call, const std::string& place);
  void AddReasoning(const v1::ChatMessage& message, json::object& out) const;

  const MessageForm form_;
  const OddValues odd_;
  const json::storage_ptr memory_;
  ToolCallIds ids_;
  bool has_odd_values_ = false;
};

json::value MessageWriter::Arguments(const std::string& text) {
  if (text.find_first_not_of(" \t\r\n") == std::string::npos)
    return json::value(json::object_kind, memory_);
  json::parse_options options;
  options.max_depth = kMaxArgumentsDepth;
  boost::system::error_code error;
  json::value arguments = json::parse(text, error, memory_, options);
  if (!error && arguments.is_object()) return arguments;
  has_odd_values_ = true;
  if (odd_ == OddValues::kAsSent) return json::value(text, memory_);
  return json::object({{"arguments", text}}, memory_);
}

absl::StatusOr<json::object> MessageWriter::Call(const v1::ToolCall& call,
                                                 const std::string& place) {
  SC_RETURN_IF_ERROR(text::CheckUtf8(place + ".id", call.id()));
  SC_RETURN_IF_ERROR(text::CheckUtf8(place + ".name", call.name()));
  SC_RETURN_IF_ERROR(text::CheckUtf8(place + ".arguments", call.arguments()));
  if (call.name().empty()) {
    return absl::InvalidArgumentError(fmt::format("{}.name: is empty", place));
  }
  return json::object(
      {{"id", ids_.OfCall(call.id(), call.name())},
       {"type", "function"},
       {"function", {{"name", call.name()}, {"arguments", Arguments(call.arguments())}}}},
      memory_);
}

void MessageWriter::AddReasoning(const v1::ChatMessage& message, json::object& out) const {
  if (form_.reasoning_is_part) {
    json::array parts({{{"type", "thinking"}, {"thinking", message.reasoning()}}}, memory_);
    if (!message.content().empty()) {
      parts.push_back({{"type", "text"}, {"text", message.content()}});
    }
    out["content"] = std::move(parts);
  }
  out["reasoning_content"] = message.reasoning();
  if (form_.family == ToolFamily::kHarmony && !message.content().empty() &&
      !message.tool_calls().empty()) {
    // The template takes only one of the two beside a call, and writes both as reasoning.
    out["reasoning_content"] = message.reasoning() + "\n" + message.content();
    out["content"] = "";
  }
}

absl::StatusOr<json::object> MessageWriter::Message(const v1::ChatMessage& message,
                                                    const std::string& place) {
  if (message.role().empty()) {
    return absl::InvalidArgumentError(fmt::format("{}.role: is empty", place));
  }
  SC_RETURN_IF_ERROR(text::CheckUtf8(place + ".role", message.role()));
  SC_RETURN_IF_ERROR(text::CheckUtf8(place + ".content", message.content()));
  SC_RETURN_IF_ERROR(text::CheckUtf8(place + ".name", message.name()));
  SC_RETURN_IF_ERROR(text::CheckUtf8(place + ".reasoning", message.reasoning()));
  SC_RETURN_IF_ERROR(text::CheckUtf8(place + ".tool_call_id", message.tool_call_id()));
  json::object out({{"role", message.role()}}, memory_);
  if (message.has_content()) {
    out["content"] = message.content();
  } else if (message.tool_calls().empty() || !KnowsNull(form_.family) || form_.reasoning_is_part) {
    out["content"] = "";  // most templates concatenate it with other text
  } else {
    has_odd_values_ = true;
    out["content"] = odd_ == OddValues::kAsSent ? json::value(nullptr) : json::value("");
  }
  if (!message.name().empty()) out["name"] = message.name();
  if (!message.reasoning().empty()) AddReasoning(message, out);
  if (!message.tool_call_id().empty()) {
    out["tool_call_id"] = ids_.OfResult(message.tool_call_id());
  }
  json::array calls(memory_);
  for (int i = 0; i < message.tool_calls_size(); ++i) {
    SC_ASSIGN_OR_RETURN(json::object call,
                        Call(message.tool_calls(i), fmt::format("{}.tool_calls[{}]", place, i)));
    calls.push_back(std::move(call));
  }
  if (!calls.empty()) out["tool_calls"] = std::move(calls);
  return out;
}

}  // namespace

absl::StatusOr<MessagesForTemplate> MessagesJson(const v1::ChatRequest& request,
                                                 const MessageForm& form, OddValues odd) try {
  if (request.messages().empty()) return absl::InvalidArgumentError("messages: is empty");
  const json::storage_ptr memory = ClientJsonMemory();
  MessageWriter writer(form, odd, memory);
  json::array messages(memory);
  for (int i = 0; i < request.messages_size(); ++i) {
    SC_ASSIGN_OR_RETURN(json::object message,
                        writer.Message(request.messages(i), fmt::format("messages[{}]", i)));
    messages.push_back(std::move(message));
  }
  return MessagesForTemplate{.json = json::serialize(messages),
                             .has_odd_values = writer.has_odd_values()};
} catch (const std::bad_alloc&) {
  return absl::InvalidArgumentError(fmt::format(
      "messages: too many values: parsed, they take more than {} bytes", kMaxJsonMemoryBytes));
}

}  // namespace stagecoach::router
