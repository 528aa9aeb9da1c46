#include "router/frontend/http/api_request.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/json.hpp>
#include <charconv>
#include <optional>
#include <utility>

#include "common/status.h"
#include "router/frontend/http/api_error.h"
#include "router/frontend/http/common_fields.h"
#include "router/frontend/http/foreign_fields.h"
#include "router/frontend/http/json_fields.h"
#include "router/frontend/http/message_fields.h"
#include "router/frontend/http/sampling_fields.h"
#include "router/frontend/http/template_variables.h"
#include "router/text/error_code.h"
#include "router/text/request_builder.h"

namespace stagecoach::router::http {
namespace {

namespace json = boost::json;

// Limit for all copies of the fields that prompts share.
constexpr size_t kMaxCommonBytes = 16 << 20;
constexpr uint32_t kDefaultCompletionTokens = 16;  // default of OpenAI's /v1/completions

void TakeIds(JsonFields& fields, const json::array& ids, const std::string& name,
             v1::GenerateRequest& request) {
  for (size_t i = 0; i < ids.size(); ++i) {
    const auto id = ToInteger(ids[i], kMinInt32, kMaxInt32);
    if (!id) return fields.Refuse(fmt::format("{}[{}]", name, i), "is not a token id");
    request.mutable_tokens()->add_ids(static_cast<int32_t>(*id));
  }
}

// A string, an array of token ids, or an array of either.
void ReadPrompts(JsonFields& fields, ApiRequest& request) {
  const json::value* prompt = fields.Any("prompt");
  if (prompt == nullptr) return fields.Refuse("prompt", "is missing");
  if (prompt->is_string()) {
    request.prompts.emplace_back().set_text(std::string(prompt->get_string()));
    return;
  }
  if (!prompt->is_array()) {
    return fields.Refuse("prompt", fmt::format("must be a string, an array of strings, or token "
                                               "ids, not {}",
                                               KindName(*prompt)));
  }
  const json::array& items = prompt->get_array();
  if (items.empty()) return fields.Refuse("prompt", "is empty");
  if (items.front().is_number()) {
    return TakeIds(fields, items, "prompt", request.prompts.emplace_back());
  }
  request.prompt_is_list = true;
  if (items.size() > kMaxPrompts) {
    return fields.Refuse("prompt", fmt::format("{} prompts; at most {} are allowed in one request",
                                               items.size(), kMaxPrompts));
  }
  for (size_t i = 0; i < items.size(); ++i) {
    const std::string name = fmt::format("prompt[{}]", i);
    v1::GenerateRequest& one = request.prompts.emplace_back();
    if (items[i].is_string()) {
      one.set_text(std::string(items[i].get_string()));
    } else if (items[i].is_array()) {
      one.mutable_tokens();
      TakeIds(fields, items[i].get_array(), name, one);
    } else {
      return fields.Refuse(
          name, fmt::format("must be a string or token ids, not {}", KindName(items[i])));
    }
  }
}

void ReadChatLogprobs(JsonFields& fields, ApiRequest& request, v1::SamplingParams& sampling) {
  request.logprobs = fields.Bool("logprobs").value_or(false);
  const auto top = fields.Integer("top_logprobs", 0, kMaxInt32);
  if (request.logprobs) {
    sampling.set_logprobs(static_cast<uint32_t>(top.value_or(0)));
  } else if (top.value_or(0) > 0) {
    fields.Refuse("top_logprobs", "needs logprobs: true");
  }
}

// The rest of a field name after the prefix `begin`.
std::optional<std::string_view> Behind(std::string_view field, std::string_view begin) {
  if (!field.starts_with(begin)) return std::nullopt;
  return field.substr(begin.size());
}

// "tools[4].name" for "0].function.name" of a client whose fifth tool is the router's first.
std::string ToolInClientTerms(const std::vector<size_t>& places, std::string_view rest) {
  size_t index = 0;
  std::from_chars(rest.begin(), rest.end(), index);
  std::string name = fmt::format("tools[{}]", index < places.size() ? places[index] : index);
  rest.remove_prefix(std::min(rest.find(']') + 1, rest.size()));
  if (const auto inner = Behind(rest, ".function")) rest = *inner;
  return name += rest;
}

// Clients of this API find a too long prompt by these words.
absl::Status InMessagesTerms(const absl::Status& status) {
  const bool is_too_long = ErrorCode(status) == kContextLengthExceeded;
  return is_too_long ? WithField(status, "prompt is too long") : status;
}

}  // namespace

absl::StatusOr<ApiRequest> ParseCompletionRequest(std::string_view body) {
  SC_ASSIGN_OR_RETURN(const json::object object, ParseObject(body));
  JsonFields fields(object);
  ApiRequest request;
  RefuseForeign(fields, Endpoint::kCompletions);
  v1::GenerateRequest common;
  ReadCommon(fields, common);
  v1::SamplingParams sampling = ReadSampling(fields, request);
  ReadStreaming(fields, request);
  if (const auto add = fields.Bool("add_special_tokens")) common.set_add_special_tokens(*add);
  request.echo = fields.Bool("echo").value_or(false);
  if (const auto logprobs = fields.Integer("logprobs", 0, kMaxInt32)) {
    request.logprobs = true;
    sampling.set_logprobs(static_cast<uint32_t>(*logprobs));
    if (request.echo && !request.prompt_logprobs) {
      sampling.set_prompt_logprobs(static_cast<uint32_t>(*logprobs));
    }
  }
  if (!sampling.has_max_tokens() && !request.is_unlimited) {
    sampling.set_max_tokens(kDefaultCompletionTokens);
  }
  request.without_completion =
      request.echo && sampling.has_max_tokens() && sampling.max_tokens() == 0;
  if (request.without_completion) sampling.set_max_tokens(1);
  common.set_echo(request.echo);
  *common.mutable_sampling() = std::move(sampling);
  if (request.json_events) *common.mutable_json_events() = *request.json_events;
  ReadPrompts(fields, request);
  const size_t n_prompts = request.prompts.size();
  if (n_prompts > 1 && common.ByteSizeLong() > kMaxCommonBytes / n_prompts) {
    fields.Refuse("prompt", fmt::format("{} prompts, and {} bytes of other fields copied for each: "
                                        "at most {} bytes are allowed in total",
                                        n_prompts, common.ByteSizeLong(), kMaxCommonBytes));
  }
  SC_RETURN_IF_ERROR(fields.status());
  for (v1::GenerateRequest& one : request.prompts) one.MergeFrom(common);
  return request;
}

absl::StatusOr<ApiRequest> ParseChatRequest(std::string_view body) {
  SC_ASSIGN_OR_RETURN(const json::object object, ParseObject(body));
  JsonFields fields(object);
  ApiRequest request;
  request.is_chat = true;
  RefuseForeign(fields, Endpoint::kChat);
  ReadCommon(fields, request.chat);
  v1::SamplingParams sampling = ReadSampling(fields, request);
  ReadStreaming(fields, request);
  if (fields.Bool("echo").value_or(false)) fields.Refuse("echo", "is not offered for chat");
  ReadChatLogprobs(fields, request, sampling);
  *request.chat.mutable_sampling() = std::move(sampling);
  if (const auto add = fields.Bool("add_generation_prompt")) {
    request.chat.set_add_generation_prompt(*add);
  }
  request.chat.set_continue_final_message(fields.Bool("continue_final_message").value_or(false));
  ReadTemplateVariables(fields, {}, request.chat);
  if (const auto separate = fields.Bool("separate_reasoning")) {
    request.chat.set_separate_reasoning(*separate);
  }
  ReadMessages(fields, request.chat);
  ReadTools(fields, request.chat);
  if (request.json_events) *request.chat.mutable_json_events() = *request.json_events;
  SC_RETURN_IF_ERROR(fields.status());
  return request;
}

ApiRequest WithoutInput(const ApiRequest& request) {
  ApiRequest rest{request, {}, {}};
  const auto keep = [&request](const auto& from, auto& to) {
    to.set_request_id(request.request_id());
    if (from.has_skip_special_tokens()) to.set_skip_special_tokens(from.skip_special_tokens());
    v1::SamplingParams& sampling = *to.mutable_sampling();
    sampling.set_n(request.n());
    *sampling.mutable_stop() = request.sampling().stop();
    *sampling.mutable_stop_token_ids() = request.sampling().stop_token_ids();
    if (request.sampling().has_grammar()) sampling.mutable_grammar();
  };
  if (request.is_chat) {
    keep(request.chat, rest.chat);
  } else {
    rest.prompts.resize(request.prompts.size());
    keep(request.prompts.front(), rest.prompts.front());
  }
  return rest;
}

absl::Status InClientTerms(const ApiRequest& request, size_t i, const absl::Status& status) {
  const std::string message(status.message());
  const std::string_view field = FieldOf(message);
  const std::string prompt = request.api == Api::kResponses ? "input"
                             : request.is_chat              ? "messages"
                             : request.prompt_is_list       ? fmt::format("prompt[{}]", i)
                                                            : "prompt";
  if (field == "prompt" || field == "text") {
    const absl::Status named = WithField(status, prompt);
    return request.api == Api::kMessages ? InMessagesTerms(named) : named;
  }
  if (const auto rest = Behind(field, "tokens.ids")) {
    return WithField(status, fmt::format("{}{}", prompt, *rest));
  }
  if (const auto rest = Behind(field, "json_events.paths")) {
    return WithField(status, fmt::format("stream_options.json_events{}", *rest));
  }
  if (const auto rest = Behind(field, "sampling.grammar")) {
    // The grammar comes from tool_choice.
    if (!request.sampling().has_grammar()) return WithField(status, "tools");
    const std::string_view place = Behind(*rest, ".choice.texts").value_or("");
    return WithField(status, fmt::format("{}{}", request.grammar_field, place));
  }
  if (request.api == Api::kResponses && field == "messages") return WithField(status, prompt);
  if (field == "resumable") return WithField(status, "stream_options.resumable");
  if (const auto rest = Behind(field, "tools["); rest && request.tool_places) {
    return WithField(status, ToolInClientTerms(*request.tool_places, *rest));
  }
  if (Behind(field, "tool_choice")) return WithField(status, "tool_choice");
  if (field.find(".tool_calls[") != std::string_view::npos) {
    const size_t last = field.rfind('.');
    return WithField(status,
                     fmt::format("{}.function{}", field.substr(0, last), field.substr(last)));
  }
  const auto name = Behind(field, "sampling.");
  if (!name) return status;
  if (*name == "max_tokens") return WithField(status, request.max_tokens_name);
  if (*name == "logprobs" && request.is_chat) return WithField(status, "top_logprobs");
  if (*name == "stop[0]" && request.stop_is_string) return WithField(status, "stop");
  if (const auto rest = Behind(*name, "stop[")) {
    return WithField(status, fmt::format("{}[{}", request.stop_name, *rest));
  }
  if (*name == "stop") return WithField(status, request.stop_name);
  return WithField(status, *name);
}

}  // namespace stagecoach::router::http
