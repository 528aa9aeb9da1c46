#include "router/text/chat_messages.h"

#include <fmt/format.h>

#include <boost/json.hpp>
#include <new>

#include "common/status.h"
#include "common/text/utf8.h"
#include "router/text/client_json.h"

namespace stagecoach::router {
namespace {

namespace json = boost::json;

absl::Status Bad(std::string_view field, std::string_view what) {
  return absl::InvalidArgumentError(fmt::format("{}: {}", field, what));
}

absl::Status CheckText(const std::string& place, std::string_view field, const std::string& text) {
  if (text::IsUtf8(text)) return absl::OkStatus();
  return Bad(fmt::format("{}.{}", place, field), "is not valid UTF-8");
}

absl::StatusOr<json::object> CallJson(const v1::ToolCall& call, ToolFamily family,
                                      const std::string& place, const json::storage_ptr& memory) {
  SC_RETURN_IF_ERROR(CheckText(place, "id", call.id()));
  SC_RETURN_IF_ERROR(CheckText(place, "name", call.name()));
  if (call.name().empty()) return Bad(place + ".name", "is empty");
  json::value arguments(json::object_kind, memory);
  if (!call.arguments().empty()) {
    boost::system::error_code error;
    arguments = json::parse(call.arguments(), error, memory);
    if (error || !arguments.is_object()) return Bad(place + ".arguments", "is not a JSON object");
  }
  return json::object({{"id", ToolCallIdForTemplate(family, call.id())},
                       {"type", "function"},
                       {"function", {{"name", call.name()}, {"arguments", std::move(arguments)}}}},
                      memory);
}

absl::StatusOr<json::object> MessageJson(const v1::ChatMessage& message, ToolFamily family,
                                         const std::string& place,
                                         const json::storage_ptr& memory) {
  if (message.role().empty()) return Bad(place + ".role", "is empty");
  SC_RETURN_IF_ERROR(CheckText(place, "role", message.role()));
  SC_RETURN_IF_ERROR(CheckText(place, "content", message.content()));
  SC_RETURN_IF_ERROR(CheckText(place, "name", message.name()));
  SC_RETURN_IF_ERROR(CheckText(place, "reasoning", message.reasoning()));
  SC_RETURN_IF_ERROR(CheckText(place, "tool_call_id", message.tool_call_id()));
  json::object out({{"role", message.role()}}, memory);
  if (message.has_content()) {
    out["content"] = message.content();
  } else if (message.tool_calls().empty()) {
    out["content"] = "";  // most templates put it together with other text
  } else {
    out["content"] = nullptr;
  }
  if (!message.name().empty()) out["name"] = message.name();
  if (!message.reasoning().empty()) out["reasoning_content"] = message.reasoning();
  if (!message.tool_call_id().empty()) {
    out["tool_call_id"] = ToolCallIdForTemplate(family, message.tool_call_id());
  }
  json::array calls(memory);
  for (int i = 0; i < message.tool_calls_size(); ++i) {
    SC_ASSIGN_OR_RETURN(json::object call,
                        CallJson(message.tool_calls(i), family,
                                 fmt::format("{}.tool_calls[{}]", place, i), memory));
    calls.push_back(std::move(call));
  }
  if (!calls.empty()) out["tool_calls"] = std::move(calls);
  return out;
}

}  // namespace

absl::StatusOr<std::string> MessagesJson(const v1::ChatRequest& request, ToolFamily family) try {
  if (request.messages().empty()) return absl::InvalidArgumentError("messages: is empty");
  const json::storage_ptr memory = ClientJsonMemory();
  json::array messages(memory);
  for (int i = 0; i < request.messages_size(); ++i) {
    SC_ASSIGN_OR_RETURN(json::object message, MessageJson(request.messages(i), family,
                                                          fmt::format("messages[{}]", i), memory));
    messages.push_back(std::move(message));
  }
  return json::serialize(messages);
} catch (const std::bad_alloc&) {
  return absl::InvalidArgumentError(fmt::format(
      "messages: have too many values: they take more than {} bytes", kMaxJsonMemoryBytes));
}

}  // namespace stagecoach::router
