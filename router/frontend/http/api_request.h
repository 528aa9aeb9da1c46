// Parses the bodies of OpenAI's /v1/completions and /v1/chat/completions into the router's own
// requests. Other APIs' requests become the same.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "router/frontend/arrival.h"
#include "router/frontend/http/responses/responses_form.h"
#include "stagecoach/v1/inference.pb.h"

namespace stagecoach::router::http {

// Limit of prompts in one /v1/completions request; each is scheduled separately.
inline constexpr size_t kMaxPrompts = 1024;

// The API of a request that decides the form of its answer.
enum class Api : uint8_t {
  kOpenAi,     // /v1/completions, /v1/chat/completions
  kMessages,   // Anthropic's /v1/messages
  kResponses,  // OpenAI's /v1/responses
};

// Properties of the client's request that decide the form of the answer.
struct ApiForm {
  Api api = Api::kOpenAi;
  bool is_chat = false;
  bool stream = false;
  bool include_usage = false;     // send a last chunk with the usage
  bool continuous_usage = false;  // every chunk carries the usage so far
  bool resumable = false;         // keep the stream for a client that reconnects
  bool logprobs = false;          // logprobs of the answer's tokens
  bool echo = false;              // return the prompt before the answer
  // max_tokens 0: return only the prompt; one token is generated and dropped.
  bool without_completion = false;
  bool prompt_logprobs = false;  // in a separate field
  bool return_token_ids = false;
  Arrival arrival;
  std::optional<v1::JsonEvents> json_events;  // instead of text; also set in the requests
  ResponsesForm responses;                    // for kResponses

  // The client's names for fields that the router names differently.
  const char* max_tokens_name = "max_tokens";
  const char* stop_name = "stop";
  std::string grammar_field;  // "guided_json"; empty: none
  // The places in the client's list of the tools that the router got, if the API has another form
  // of tools.
  std::optional<std::vector<size_t>> tool_places;
  bool is_unlimited = false;  // the client explicitly set no limit
  bool stop_is_string = false;
  bool prompt_is_list = false;
};

struct ApiRequest : ApiForm {
  v1::ChatRequest chat;                      // is_chat
  std::vector<v1::GenerateRequest> prompts;  // !is_chat: one or more, equal except for the prompt

  size_t n_prompts() const { return is_chat ? 1 : prompts.size(); }
  const v1::SamplingParams& sampling() const {
    return is_chat ? chat.sampling() : prompts.front().sampling();
  }
  const std::string& request_id() const {
    return is_chat ? chat.request_id() : prompts.front().request_id();
  }
  uint32_t n() const { return sampling().has_n() ? sampling().n() : 1; }
};

// INVALID_ARGUMENT names the field. These functions check types and HTTP-only fields;
// BuildGeneration checks ranges and everything that depends on the model.
absl::StatusOr<ApiRequest> ParseCompletionRequest(std::string_view body);
absl::StatusOr<ApiRequest> ParseChatRequest(std::string_view body);

// A copy with only what answers and InClientTerms need. Leaves out the sources of tokens and
// grammars, which may be large.
ApiRequest WithoutInput(const ApiRequest& request);

// Translates a router error about prompt `i` to the field names of the client's request.
absl::Status InClientTerms(const ApiRequest& request, size_t i, const absl::Status& status);

}  // namespace stagecoach::router::http
