// The bodies of /v1/completions and /v1/chat/completions as the requests that the router knows.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "router/frontend/arrival.h"
#include "stagecoach/v1/inference.pb.h"

namespace stagecoach::router::http {

// Prompts of one /v1/completions; each is scheduled by itself.
inline constexpr size_t kMaxPrompts = 1024;

// How a client asked, and wants to be answered.
struct ApiForm {
  bool is_chat = false;
  bool stream = false;
  bool include_usage = false;       // a last chunk with the usage
  bool continuous_usage = false;    // every chunk has the usage so far
  bool resumable = false;           // the stream is kept for a client that comes back
  bool logprobs = false;            // of the answer's tokens
  bool echo = false;                // the prompt stands before the answer
  bool without_completion = false;  // max_tokens 0: the prompt alone, one token is thrown away
  bool prompt_logprobs = false;     // as a field of its own
  bool return_token_ids = false;
  Arrival arrival;
  std::optional<v1::JsonEvents> json_events;  // in place of the text, as is in the requests too

  // How the client named what the router calls otherwise.
  const char* max_tokens_name = "max_tokens";
  bool is_unlimited = false;  // said so: no max_tokens
  std::string grammar_field;  // "guided_json"; empty: none
  bool stop_is_string = false;
  bool prompt_is_list = false;
};

struct ApiRequest : ApiForm {
  v1::ChatRequest chat;                      // is_chat
  std::vector<v1::GenerateRequest> prompts;  // else: one or more, alike but for the prompt

  size_t n_prompts() const { return is_chat ? 1 : prompts.size(); }
  const v1::SamplingParams& sampling() const {
    return is_chat ? chat.sampling() : prompts.front().sampling();
  }
  const std::string& request_id() const {
    return is_chat ? chat.request_id() : prompts.front().request_id();
  }
  uint32_t n() const { return sampling().has_n() ? sampling().n() : 1; }
};

// INVALID_ARGUMENT names the field. Types and what only HTTP knows are checked here; ranges and
// all that depends on the model are BuildGeneration's.
absl::StatusOr<ApiRequest> ParseCompletionRequest(std::string_view body);
absl::StatusOr<ApiRequest> ParseChatRequest(std::string_view body);

// What of a request is enough for its answers and for InClientTerms: not what becomes tokens and
// grammars, which may be large.
ApiRequest WithoutInput(const ApiRequest& request);

// An error of the router's own about prompt `i`, with the field named as the client did.
absl::Status InClientTerms(const ApiRequest& request, size_t i, const absl::Status& status);

}  // namespace stagecoach::router::http
