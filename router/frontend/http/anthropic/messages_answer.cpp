#include "router/frontend/http/anthropic/messages_answer.h"

#include <algorithm>
#include <utility>

#include "common/json_text.h"
#include "router/frontend/http/api_error.h"
#include "router/frontend/http/event_stream.h"
#include "router/text/client_json.h"

namespace stagecoach::router::http {
namespace {

namespace json = boost::json;

// Some clients drop thinking without a signature when they send a conversation back. This server
// takes any.
constexpr char kSignature[] = "unsigned";

// What a tool gets. Arguments that were cut off are none.
json::value ToolInput(const std::string& arguments) {
  boost::system::error_code error;
  json::value input = ParseClientJson(arguments, error);
  return !error && input.is_object() ? input : json::value(json::object());
}

// The block of a part. Without `is_whole`, its text comes in deltas.
json::object BlockJson(const OutputPart& part, bool is_whole) {
  switch (part.kind) {
    case PartKind::kReasoning:
      return {{"type", "thinking"},
              {"thinking", is_whole ? part.text : ""},
              {"signature", is_whole ? kSignature : ""}};
    case PartKind::kText:
      return {{"type", "text"}, {"text", is_whole ? part.text : ""}};
    case PartKind::kToolCall:
      return {{"type", "tool_use"},
              {"id", part.call_id},
              {"name", part.name},
              {"input", is_whole ? ToolInput(part.text) : json::value(json::object())}};
  }
  return {};
}

json::object DeltaJson(PartKind kind, const std::string& text) {
  switch (kind) {
    case PartKind::kReasoning:
      return {{"type", "thinking_delta"}, {"thinking", text}};
    case PartKind::kText:
      return {{"type", "text_delta"}, {"text", text}};
    case PartKind::kToolCall:
      return {{"type", "input_json_delta"}, {"partial_json", text}};
  }
  return {};
}

std::string MessagesEvent(const char* type, json::object data) {
  json::object event = {{"type", type}};
  for (auto& [key, value] : data) event.emplace(key, std::move(value));
  return NamedEvent(type, event);
}

}  // namespace

MessagesAnswer::MessagesAnswer(const ApiRequest& request, const ServedModel& model,
                               const std::string& request_id)
    : request_(request),
      id_("msg_" + request_id),
      model_name_(model.name),
      output_(/*keep_text=*/!request.stream) {}

json::object MessagesAnswer::Head(json::array content) const {
  return {{"id", id_},
          {"type", "message"},
          {"role", "assistant"},
          {"model", model_name_},
          {"content", std::move(content)}};
}

void MessagesAnswer::AddStop(json::object& to) const {
  json::value reason;
  json::value sequence;
  switch (output_.finish_reason()) {
    case v1::FINISH_REASON_TOOL_CALLS:
      reason = "tool_use";
      break;
    case v1::FINISH_REASON_LENGTH:
      reason = "max_tokens";
      break;
    case v1::FINISH_REASON_STOP: {
      const auto& stops = request_.sampling().stop();
      const bool by_text =
          std::find(stops.begin(), stops.end(), output_.stop_reason()) != stops.end();
      reason = by_text ? "stop_sequence" : "end_turn";
      if (by_text) sequence = json::value(output_.stop_reason());
      break;
    }
    default:
      break;
  }
  to.emplace("stop_reason", std::move(reason));
  to.emplace("stop_sequence", std::move(sequence));
}

json::object MessagesAnswer::Usage() const {
  // input_tokens are those that were neither read from a cache nor written to one.
  return {{"input_tokens", output_.n_prompt_tokens() - output_.usage().cached_tokens()},
          {"cache_creation_input_tokens", 0},
          {"cache_read_input_tokens", output_.usage().cached_tokens()},
          {"output_tokens", output_.n_output_tokens()}};
}

std::string MessagesAnswer::EndBlock() const {
  if (n_begun_blocks_ == 0) return "";
  const size_t index = n_begun_blocks_ - 1;
  std::string events;
  if (output_.parts()[index].kind == PartKind::kReasoning) {
    events += MessagesEvent(
        "content_block_delta",
        {{"index", index},
         {"delta", json::object{{"type", "signature_delta"}, {"signature", kSignature}}}});
  }
  return events + MessagesEvent("content_block_stop", {{"index", index}});
}

std::string MessagesAnswer::Chunks(size_t, const v1::GenerateResponse& message) {
  const std::vector<OutputPiece> pieces = output_.Add(message);
  std::string events;
  if (!std::exchange(begun_, true)) {
    json::object head = Head({});
    head.emplace("stop_reason", nullptr);
    head.emplace("stop_sequence", nullptr);
    json::object usage = Usage();
    usage["output_tokens"] = 0;  // the deltas follow
    head.emplace("usage", std::move(usage));
    events += MessagesEvent("message_start", {{"message", std::move(head)}});
    events += MessagesEvent("ping", {});
  }
  for (const OutputPiece& piece : pieces) {
    const OutputPart& part = output_.parts()[piece.part];
    if (piece.begins) {
      events += EndBlock();
      n_begun_blocks_ = piece.part + 1;
      events += MessagesEvent("content_block_start",
                              {{"index", piece.part}, {"content_block", BlockJson(part, false)}});
    }
    if (piece.text.empty()) continue;
    events += MessagesEvent("content_block_delta",
                            {{"index", piece.part}, {"delta", DeltaJson(part.kind, piece.text)}});
  }
  return events;
}

std::string MessagesAnswer::LastChunks() {
  json::object delta;
  AddStop(delta);
  return EndBlock() +
         MessagesEvent("message_delta", {{"delta", std::move(delta)}, {"usage", Usage()}}) +
         MessagesEvent("message_stop", {});
}

std::string MessagesAnswer::FailureChunks(const absl::Status& status) {
  return "event: error\ndata: " + ErrorJson(status, ErrorForm::kAnthropic) + "\n\n";
}

void MessagesAnswer::Collect(size_t, const v1::GenerateResponse& message) { output_.Add(message); }

std::string MessagesAnswer::Whole() {
  json::array content;
  for (const OutputPart& part : output_.parts()) content.push_back(BlockJson(part, true));
  json::object whole = Head(std::move(content));
  AddStop(whole);
  whole.emplace("usage", Usage());
  return JsonText(std::move(whole));
}

}  // namespace stagecoach::router::http
