#include "router/frontend/http/responses/kept_response.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/json.hpp>
#include <charconv>

#include "common/json_text.h"
#include "common/status.h"
#include "common/url_text.h"

namespace stagecoach::router::http {
namespace {

namespace json = boost::json;

constexpr size_t kDefaultLimit = 20, kMostLimit = 100;  // OpenAI's

class ItemList {
 public:
  void AddMessage(const v1::ChatMessage& message) {
    if (message.role() == "tool") {
      return Add("fco", {{"type", "function_call_output"},
                         {"call_id", message.tool_call_id()},
                         {"output", message.content()}});
    }
    if (!message.reasoning().empty()) {
      Add("rs", {{"type", "reasoning"},
                 {"summary", json::array()},
                 {"content",
                  json::array({{{"type", "reasoning_text"}, {"text", message.reasoning()}}})}});
    }
    if (message.has_content()) AddText(message);
    for (const v1::ToolCall& call : message.tool_calls()) {
      Add("fc", {{"type", "function_call"},
                 {"call_id", call.id()},
                 {"name", call.name()},
                 {"arguments", call.arguments()}});
    }
  }

  json::array Take() { return std::move(items_); }

 private:
  void AddText(const v1::ChatMessage& message) {
    const bool is_answer = message.role() == "assistant";
    json::object part = {{"type", is_answer ? "output_text" : "input_text"},
                         {"text", message.content()}};
    if (is_answer) part.emplace("annotations", json::array());
    Add("msg", {{"type", "message"},
                {"role", message.role()},
                {"content", json::array({std::move(part)})}});
  }

  void Add(const char* prefix, json::object item) {
    item.emplace("id", fmt::format("{}_{}", prefix, items_.size()));
    item.emplace("status", "completed");
    items_.push_back(std::move(item));
  }

  json::array items_;
};

absl::StatusOr<size_t> ReadLimit(std::string_view text) {
  if (text.empty()) return kDefaultLimit;
  size_t limit = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), limit);
  if (error == std::errc() && end == text.data() + text.size() && limit > 0 &&
      limit <= kMostLimit) {
    return limit;
  }
  return absl::InvalidArgumentError(
      fmt::format("limit: must be an integer from 1 to {}", kMostLimit));
}

}  // namespace

absl::StatusOr<std::string> InputItemsJson(const KeptResponse& kept, std::string_view query) {
  SC_ASSIGN_OR_RETURN(const size_t limit, ReadLimit(QueryValue(query, "limit")));
  ItemList list;
  for (int i = 0; i + 1 < kept.conversation.messages_size(); ++i) {  // the last one is the answer
    list.AddMessage(kept.conversation.messages(i));
  }
  json::array items = list.Take();
  if (QueryValue(query, "order") != "asc") std::ranges::reverse(items);
  size_t begin = 0;
  if (const std::string_view after = QueryValue(query, "after"); !after.empty()) {
    while (begin < items.size() && items[begin].at("id").as_string() != after) ++begin;
    if (begin == items.size()) {
      return absl::InvalidArgumentError("after: the response has no input item with this id");
    }
    ++begin;
  }
  const size_t end = std::min(items.size(), begin + limit);
  json::array page(items.begin() + static_cast<std::ptrdiff_t>(begin),
                   items.begin() + static_cast<std::ptrdiff_t>(end));
  json::object answer = {{"object", "list"},
                         {"first_id", page.empty() ? json::value() : page.front().at("id")},
                         {"last_id", page.empty() ? json::value() : page.back().at("id")},
                         {"has_more", end < items.size()}};
  answer.emplace("data", std::move(page));
  return JsonText(std::move(answer));
}

}  // namespace stagecoach::router::http
