#include "router/frontend/http/responses/responses_request.h"

#include <fmt/format.h>

#include <boost/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "common/status.h"
#include "router/frontend/http/common_fields.h"
#include "router/frontend/http/dropped.h"
#include "router/frontend/http/grammar_fields.h"
#include "router/frontend/http/json_fields.h"
#include "router/frontend/http/responses/input_items.h"
#include "router/frontend/http/responses/response_tools.h"
#include "router/frontend/http/sampling_fields.h"
#include "router/frontend/http/template_variables.h"

namespace stagecoach::router::http {
namespace {

namespace json = boost::json;

// Fields of OpenAI's API that an answer is useful without.
constexpr const char* kDroppedHints[] = {"context_management", "include",          "max_tool_calls",
                                         "prompt_cache_key",   "service_tier",     "top_logprobs",
                                         "stream_options",     "safety_identifier"};

// Fields that name something that only OpenAI's servers keep.
constexpr std::pair<const char*, const char*> kRefused[] = {
    {"conversation", "is not offered by this server; use previous_response_id"},
    {"prompt", "is not offered by this server; send its text as instructions and input"},
};

// Reads `text`: the form of the answer.
void ReadTextForm(JsonFields& fields, ApiRequest& request, v1::SamplingParams& sampling) {
  const json::object* text = fields.Object("text");
  if (text == nullptr) return;
  JsonFields inner(*text, "text.");
  ReadResponseFormat(inner, "text.", "format", sampling, request);
  if (inner.Any("verbosity") != nullptr) NoteDropped("the field text.verbosity");
  fields.Adopt(inner.status());
}

// Reads `reasoning`: the effort becomes variables of the chat template.
std::vector<TemplateVariable> ReadReasoning(JsonFields& fields) {
  const json::object* reasoning = fields.Object("reasoning");
  if (reasoning == nullptr) return {};
  JsonFields inner(*reasoning, "reasoning.");
  const auto effort = inner.String("effort");
  if (inner.Any("summary") != nullptr) NoteDropped("the field reasoning.summary");
  fields.Adopt(inner.status());
  constexpr char kField[] = "reasoning.effort";
  if (!effort) return {};
  if (*effort != "none") {
    return {{.name = "reasoning_effort", .value = json::value(*effort), .field = kField}};
  }
  return {{.name = "enable_thinking", .value = false, .field = kField},
          {.name = "thinking", .value = false, .field = kField}};
}

// The answer keeps what it repeats until its end, so a larger field is not repeated.
constexpr size_t kMaxEchoBytes = 8 << 10;

// The fields that the answer repeats, with OpenAI's defaults.
std::string Echo(const json::object& object) {
  constexpr std::pair<const char*, const char*> kEchoed[] = {
      {"instructions", "null"},
      {"max_output_tokens", "null"},
      {"metadata", "{}"},
      {"parallel_tool_calls", "true"},
      {"previous_response_id", "null"},
      {"reasoning", R"({"effort":null,"summary":null})"},
      {"store", "true"},
      {"temperature", "null"},
      {"text", R"({"format":{"type":"text"}})"},
      {"tool_choice", R"("auto")"},
      {"tools", "[]"},
      {"top_p", "null"},
      {"truncation", R"("disabled")"},
      {"user", "null"}};
  std::string echo;
  for (const auto& [name, otherwise] : kEchoed) {
    const json::value* value = object.if_contains(name);
    const bool given = value != nullptr && !value->is_null();
    const std::string text = given ? json::serialize(*value) : otherwise;
    echo += fmt::format("{}\"{}\":{}", echo.empty() ? "" : ",", name,
                        text.size() > kMaxEchoBytes ? otherwise : text);
  }
  return echo;
}

}  // namespace

absl::StatusOr<ApiRequest> ParseResponsesRequest(std::string_view body) {
  SC_ASSIGN_OR_RETURN(const json::object object, ParseObject(body));
  JsonFields fields(object);
  ApiRequest request;
  request.api = Api::kResponses;
  request.is_chat = true;
  ResponsesForm& form = request.responses;
  ReadCommon(fields, request.chat);
  request.stream = fields.Bool("stream").value_or(false);
  v1::SamplingParams sampling = ReadSampling(fields, request);
  if (sampling.n() > 1) fields.Refuse("n", "must be 1: this API has one answer");
  if (request.prompt_logprobs) fields.Refuse("prompt_logprobs", "is not offered by this API");
  // Agents ask for the most that OpenAI's models give.
  sampling.set_clamp_max_tokens(true);
  ReadTextForm(fields, request, sampling);
  ReadTemplateVariables(fields, ReadReasoning(fields), request.chat);
  *request.chat.mutable_sampling() = std::move(sampling);
  if (fields.Bool("background").value_or(false)) {
    fields.Refuse("background", "is not offered by this server");
  }
  for (const auto& [name, what] : kRefused) {
    if (fields.Any(name) != nullptr) fields.Refuse(name, what);
  }
  form.store = fields.Bool("store").value_or(true);
  form.previous_response_id = fields.String("previous_response_id").value_or("");
  if (const auto instructions = fields.String("instructions")) {
    form.has_instructions = true;
    v1::ChatMessage& message = *request.chat.add_messages();
    message.set_role("system");
    message.set_content(*instructions);
  }
  ReadInput(fields, request.chat);
  ReadResponseTools(fields, request);
  for (const char* name : kDroppedHints) {
    if (fields.Any(name) != nullptr) NoteDropped(fmt::format("the field {}", name));
  }
  SC_RETURN_IF_ERROR(fields.status());
  form.echo = Echo(object);
  return request;
}

}  // namespace stagecoach::router::http
