#include "router/text/chat_messages.h"

#include <fmt/format.h>

#include <boost/json.hpp>

#include "common/status.h"
#include "common/text/utf8.h"

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
                                      const std::string& place) {
  SC_RETURN_IF_ERROR(CheckText(place, "id", call.id()));
  SC_RETURN_IF_ERROR(CheckText(place, "name", call.name()));
  if (call.name().empty()) return Bad(place + ".name", "is empty");
  json::value arguments = json::object();
  if (!call.arguments().empty()) {
    boost::system::error_code error;
    arguments = json::parse(call.arguments(), error);
    if (error || !arguments.is_object()) return Bad(place + ".arguments", "is not a JSON object");
  }
  return json::object{{"id", ToolCallIdForTemplate(family, call.id())},
                      {"type", "function"},
                      {"function", {{"name", call.name()}, {"arguments", std::move(arguments)}}}};
}

absl::StatusOr<json::object> MessageJson(const v1::ChatMessage& message, ToolFamily family,
                                         const std::string& place) {
  if (message.role().empty()) return Bad(place + ".role", "is empty");
  SC_RETURN_IF_ERROR(CheckText(place, "role", message.role()));
  SC_RETURN_IF_ERROR(CheckText(place, "content", message.content()));
  SC_RETURN_IF_ERROR(CheckText(place, "name", message.name()));
  SC_RETURN_IF_ERROR(CheckText(place, "reasoning", message.reasoning()));
  SC_RETURN_IF_ERROR(CheckText(place, "tool_call_id", message.tool_call_id()));
  json::object out{{"role", message.role()}};
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
  json::array calls;
  for (int i = 0; i < message.tool_calls_size(); ++i) {
    SC_ASSIGN_OR_RETURN(json::object call, CallJson(message.tool_calls(i), family,
                                                    fmt::format("{}.tool_calls[{}]", place, i)));
    calls.push_back(std::move(call));
  }
  if (!calls.empty()) out["tool_calls"] = std::move(calls);
  return out;
}

}  // namespace

absl::StatusOr<std::string> MessagesJson(const v1::ChatRequest& request, ToolFamily family) {
  if (request.messages().empty()) return absl::InvalidArgumentError("messages: is empty");
  json::array messages;
  for (int i = 0; i < request.messages_size(); ++i) {
    SC_ASSIGN_OR_RETURN(json::object message,
                        MessageJson(request.messages(i), family, fmt::format("messages[{}]", i)));
    messages.push_back(std::move(message));
  }
  return json::serialize(messages);
}

}  // namespace stagecoach::router
