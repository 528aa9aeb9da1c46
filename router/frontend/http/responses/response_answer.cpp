#include "router/frontend/http/responses/response_answer.h"

#include <fmt/format.h>

#include <utility>

#include "common/json_text.h"
#include "router/frontend/http/event_stream.h"
#include "router/frontend/http/responses/response_turn.h"
#include "router/frontend/http/usage_json.h"

namespace stagecoach::router::http {
namespace {

namespace json = boost::json;

constexpr char kCompleted[] = "completed", kInProgress[] = "in_progress";

// The names of a kind of part: the item and its prefix, the content and its events.
struct ItemNames {
  const char* item;
  const char* id;
  const char* content;  // null: the item has none
  const char* events;
};

ItemNames NamesOf(PartKind kind) {
  switch (kind) {
    case PartKind::kReasoning:
      return {"reasoning", "rs", "reasoning_text", "response.reasoning_text"};
    case PartKind::kText:
      return {"message", "msg", "output_text", "response.output_text"};
    case PartKind::kToolCall:
      break;
  }
  return {"function_call", "fc", nullptr, "response.function_call_arguments"};
}

json::object ContentPart(PartKind kind, const std::string& text) {
  json::object part = {{"type", NamesOf(kind).content}, {"text", text}};
  if (kind == PartKind::kText) {
    part.emplace("annotations", json::array());
    part.emplace("logprobs", json::array());
  }
  return part;
}

}  // namespace

ResponseAnswer::ResponseAnswer(const ApiRequest& request, const ServedModel& model,
                               const std::string& request_id, int64_t created_unix_s)
    : request_(request),
      request_id_(request_id),
      created_unix_s_(created_unix_s),
      model_name_(model.name) {}

const char* ResponseAnswer::Status() const {
  switch (output_.finish_reason()) {
    case v1::FINISH_REASON_UNSPECIFIED:
      return kInProgress;
    case v1::FINISH_REASON_LENGTH:
      return "incomplete";
    default:
      return kCompleted;
  }
}

json::value ResponseAnswer::Usage() const {
  if (output_.finish_reason() == v1::FINISH_REASON_UNSPECIFIED) return nullptr;
  const uint32_t n_in = output_.n_prompt_tokens(), n_out = output_.n_output_tokens();
  json::object cached = CachedJson(output_.usage());
  cached.emplace("cache_write_tokens", 0);  // OpenAI's clients need the field
  return json::object{
      {"input_tokens", n_in},
      {"input_tokens_details", std::move(cached)},
      {"output_tokens", n_out},
      {"output_tokens_details", json::object{{"reasoning_tokens", output_.n_reasoning_tokens()}}},
      {"total_tokens", n_in + n_out}};
}

json::object ResponseAnswer::Item(size_t part, const char* status) const {
  const OutputPart& one = output_.parts()[part];
  const bool begins = status == std::string_view(kInProgress);
  const ItemNames names = NamesOf(one.kind);
  json::object item = {{"id", fmt::format("{}_{}_{}", names.id, request_id_, part)},
                       {"type", names.item},
                       {"status", status}};
  if (one.kind == PartKind::kToolCall) {
    item.emplace("call_id", one.call_id);
    item.emplace("name", OwnName(one.name));
    if (const auto space = SpaceOf(one.name); !space.empty()) item.emplace("namespace", space);
    item.emplace("arguments", begins ? "" : one.text);
    return item;
  }
  if (one.kind == PartKind::kText) item.emplace("role", "assistant");
  if (one.kind == PartKind::kReasoning) item.emplace("summary", json::array());
  json::array content;
  if (!begins) content.push_back(ContentPart(one.kind, one.text));
  item.emplace("content", std::move(content));
  return item;
}

std::string_view ResponseAnswer::SpaceOf(std::string_view name) const {
  const auto found = request_.responses.namespaces.find(name);
  return found == request_.responses.namespaces.end() ? "" : std::string_view(found->second);
}

std::string_view ResponseAnswer::OwnName(std::string_view name) const {
  const std::string_view space = SpaceOf(name);
  if (!space.empty()) name.remove_prefix(NameInNamespace(std::string(space), "").size());
  return name;
}

json::array ResponseAnswer::Output() const {
  json::array items;
  const size_t n = output_.parts().size();
  for (size_t i = 0; i < n; ++i) items.push_back(Item(i, i + 1 < n ? kCompleted : Status()));
  return items;
}

std::string ResponseAnswer::Response(const char* status, const json::value& error) const {
  const bool is_cut = output_.finish_reason() == v1::FINISH_REASON_LENGTH;
  const bool begins = status == std::string_view(kInProgress);
  json::object response = {
      {"id", "resp_" + request_id_},
      {"object", "response"},
      {"created_at", created_unix_s_},
      {"status", status},
      {"background", false},
      {"error", error},
      {"incomplete_details",
       is_cut ? json::value(json::object{{"reason", "max_output_tokens"}}) : json::value()},
      {"model", model_name_},
      {"output", begins ? json::array() : Output()},
      {"usage", Usage()}};
  std::string text = JsonText(std::move(response));
  text.pop_back();
  return fmt::format("{},{}}}", text, request_.responses.echo);
}

std::string ResponseAnswer::Event(const char* type, const json::object& data) {
  json::object event = {{"type", type}, {"sequence_number", n_events_++}};
  for (const auto& [key, value] : data) event.emplace(key, value);
  return NamedEvent(type, event);
}

std::string ResponseAnswer::ResponseEvent(const char* type, const std::string& response) {
  return fmt::format(
      "event: {0}\ndata: {{\"type\":\"{0}\",\"sequence_number\":{1},\"response\":{2}}}\n\n", type,
      n_events_++, response);
}

std::string ResponseAnswer::BeginItem(size_t part) {
  const json::object item = Item(part, kInProgress);
  std::string events =
      Event("response.output_item.added", {{"output_index", part}, {"item", item}});
  const PartKind kind = output_.parts()[part].kind;
  if (NamesOf(kind).content == nullptr) return events;
  return events + Event("response.content_part.added", {{"item_id", item.at("id")},
                                                        {"output_index", part},
                                                        {"content_index", 0},
                                                        {"part", ContentPart(kind, "")}});
}

std::string ResponseAnswer::Delta(const OutputPiece& piece) {
  const PartKind kind = output_.parts()[piece.part].kind;
  const ItemNames names = NamesOf(kind);
  json::object data = {{"item_id", fmt::format("{}_{}_{}", names.id, request_id_, piece.part)},
                       {"output_index", piece.part}};
  if (names.content != nullptr) data.emplace("content_index", 0);
  data.emplace("delta", piece.text);
  if (kind == PartKind::kText) data.emplace("logprobs", json::array());
  return Event(fmt::format("{}.delta", names.events).c_str(), data);
}

std::string ResponseAnswer::EndItem(const char* status) {
  if (n_begun_items_ == 0) return "";
  const size_t part = n_begun_items_ - 1;
  const OutputPart& one = output_.parts()[part];
  const ItemNames names = NamesOf(one.kind);
  const json::object item = Item(part, status);
  json::object place = {{"item_id", item.at("id")}, {"output_index", part}};
  if (names.content != nullptr) place.emplace("content_index", 0);
  json::object done = place;
  if (one.kind == PartKind::kToolCall) done.emplace("name", OwnName(one.name));
  done.emplace(names.content == nullptr ? "arguments" : "text", one.text);
  if (one.kind == PartKind::kText) done.emplace("logprobs", json::array());
  std::string events = Event(fmt::format("{}.done", names.events).c_str(), done);
  if (names.content != nullptr) {
    place.emplace("part", ContentPart(one.kind, one.text));
    events += Event("response.content_part.done", place);
  }
  return events + Event("response.output_item.done", {{"output_index", part}, {"item", item}});
}

std::string ResponseAnswer::Chunks(size_t, const v1::GenerateResponse& message) {
  std::string events;
  if (!std::exchange(begun_, true)) {
    const std::string response = Response(kInProgress, nullptr);
    events += ResponseEvent("response.created", response);
    events += ResponseEvent("response.in_progress", response);
  }
  for (const OutputPiece& piece : output_.Add(message)) {
    if (piece.begins) {
      events += EndItem(kCompleted);
      events += BeginItem(piece.part);
      n_begun_items_ = piece.part + 1;
    }
    if (!piece.text.empty()) events += Delta(piece);
  }
  return events;
}

std::string ResponseAnswer::LastChunks() {
  const std::string response = Response(Status(), nullptr);
  Keep(response);
  std::string events = EndItem(Status());
  return events + ResponseEvent(fmt::format("response.{}", Status()).c_str(), response);
}

std::string ResponseAnswer::FailureChunks(const absl::Status& status) {
  const json::object error = {{"code", "server_error"}, {"message", std::string(status.message())}};
  return ResponseEvent("response.failed", Response("failed", error));
}

void ResponseAnswer::Collect(size_t, const v1::GenerateResponse& message) { output_.Add(message); }

std::string ResponseAnswer::Whole() {
  std::string response = Response(Status(), nullptr);
  Keep(response);
  return response;
}

void ResponseAnswer::Keep(const std::string& response) const {
  if (request_.responses.turn == nullptr) return;
  v1::ChatMessage answer;
  answer.set_role("assistant");
  for (const OutputPart& part : output_.parts()) {
    if (part.kind == PartKind::kReasoning) {
      answer.mutable_reasoning()->append(part.text);
    } else if (part.kind == PartKind::kText) {
      answer.mutable_content()->append(part.text);
    } else {
      v1::ToolCall& call = *answer.add_tool_calls();
      call.set_id(part.call_id);
      call.set_name(part.name);
      call.set_arguments(part.text);
    }
  }
  request_.responses.turn->Finish(std::move(answer), response);
}

}  // namespace stagecoach::router::http
