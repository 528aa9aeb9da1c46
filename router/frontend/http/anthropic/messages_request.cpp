#include "router/frontend/http/anthropic/messages_request.h"

#include <fmt/format.h>

#include <boost/json.hpp>
#include <vector>

#include "common/status.h"
#include "router/frontend/http/anthropic/conversation.h"
#include "router/frontend/http/anthropic/deferred_tools.h"
#include "router/frontend/http/anthropic/tool_fields.h"
#include "router/frontend/http/common_fields.h"
#include "router/frontend/http/dropped.h"
#include "router/frontend/http/grammar_fields.h"
#include "router/frontend/http/json_fields.h"
#include "router/frontend/http/sampling_fields.h"
#include "router/frontend/http/template_variables.h"

namespace stagecoach::router::http {
namespace {

namespace json = boost::json;

// Fields of Anthropic's API that an answer is useful without.
constexpr const char* kDroppedFields[] = {"cache_control", "container",   "context_management",
                                          "inference_geo", "mcp_servers", "service_tier",
                                          "speed",         "diagnostics"};

constexpr char kStopSequences[] = "stop_sequences";

void ReadStopSequences(JsonFields& fields, ApiRequest& request, v1::SamplingParams& sampling) {
  request.stop_name = kStopSequences;
  const json::array* texts = fields.Array(kStopSequences);
  if (texts == nullptr) return;
  for (size_t i = 0; i < texts->size(); ++i) {
    const json::value& one = (*texts)[i];
    if (!one.is_string()) {
      return fields.Refuse(fmt::format("{}[{}]", kStopSequences, i),
                           fmt::format("must be a string, not {}", KindName(one)));
    }
    sampling.add_stop(std::string(one.get_string()));
  }
}

// Reads `thinking`: templates call their switch one of two names.
void ReadThinking(JsonFields& fields, std::vector<TemplateVariable>& variables) {
  const json::object* thinking = fields.Object("thinking");
  if (thinking == nullptr) return;
  JsonFields inner(*thinking, "thinking.");
  const std::string type = inner.String("type").value_or("");
  const bool on = type == "enabled" || type == "adaptive";
  if (!on && type != "disabled") {
    inner.Refuse("type", R"(must be "enabled", "adaptive" or "disabled")");
  }
  if (inner.Any("budget_tokens") != nullptr) NoteDropped("the field thinking.budget_tokens");
  fields.Adopt(inner.status());
  for (const char* name : {"enable_thinking", "thinking"}) {
    variables.push_back({.name = name, .value = on, .field = "thinking"});
  }
}

// Reads `output_config`, and `output_format`, the older place of a part of it.
void ReadOutputConfig(JsonFields& fields, ApiRequest& request, v1::SamplingParams& sampling,
                      std::vector<TemplateVariable>& variables) {
  ReadResponseFormat(fields, "", "output_format", sampling, request);
  const json::object* config = fields.Object("output_config");
  if (config == nullptr) return;
  JsonFields inner(*config, "output_config.");
  ReadResponseFormat(inner, "output_config.", "format", sampling, request);
  if (const auto effort = inner.String("effort")) {
    variables.push_back({.name = "reasoning_effort",
                         .value = json::value(*effort),
                         .field = "output_config.effort"});
  }
  fields.Adopt(inner.status());
}

}  // namespace

absl::StatusOr<ApiRequest> ParseMessagesRequest(std::string_view body) {
  SC_ASSIGN_OR_RETURN(const json::object object, ParseObject(body));
  JsonFields fields(object);
  ApiRequest request;
  request.api = Api::kMessages;
  request.is_chat = true;
  ReadCommon(fields, request.chat);
  request.stream = fields.Bool("stream").value_or(false);
  v1::SamplingParams sampling = ReadSampling(fields, request);
  if (sampling.n() > 1) fields.Refuse("n", "must be 1: this API has one answer");
  if (request.prompt_logprobs) fields.Refuse("prompt_logprobs", "is not offered by this API");
  // Agents ask for the most that Anthropic's models give.
  sampling.set_clamp_max_tokens(true);
  ReadStopSequences(fields, request, sampling);
  std::vector<TemplateVariable> variables;
  ReadThinking(fields, variables);
  ReadOutputConfig(fields, request, sampling, variables);
  ReadTemplateVariables(fields, variables, request.chat);
  *request.chat.mutable_sampling() = std::move(sampling);
  DeferredTools deferred(fields.Array("tools"));
  ReadConversation(fields, deferred, request.chat);
  ReadAnthropicTools(fields, deferred, request);
  for (const char* name : kDroppedFields) {
    if (fields.Any(name) != nullptr) NoteDropped(fmt::format("the field {}", name));
  }
  SC_RETURN_IF_ERROR(fields.status());
  return request;
}

}  // namespace stagecoach::router::http
