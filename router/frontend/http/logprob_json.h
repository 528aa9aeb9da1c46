// Log-probabilities in the forms that OpenAI's two APIs, and other servers' prompt_logprobs, have.
#pragma once

#include <boost/json.hpp>
#include <cstddef>
#include <string>
#include <string_view>

#include "common/text/tokenizer.h"
#include "stagecoach/v1/inference.pb.h"

namespace stagecoach::router::http {

using PositionList = google::protobuf::RepeatedPtrField<v1::PositionLogprobs>;
using TokenList = google::protobuf::RepeatedField<int32_t>;

// {"token", "logprob", "bytes", "top_logprobs": [{"token", "logprob", "bytes"}]} for each position.
boost::json::array ChatLogprobs(const PositionList& positions);

// /v1/completions: four arrays of the same length, which grow with the text. Tokens that are no
// whole characters are spelled "bytes:\xe2\x80".
class CompletionLogprobs {
 public:
  // `tokenizer` outlives this. `skip_special_tokens`: they are not part of the text.
  CompletionLogprobs(const text::Tokenizer* tokenizer, bool skip_special_tokens)
      : tokenizer_(tokenizer), skip_special_tokens_(skip_special_tokens) {}

  // A prompt's first token: it has no logprob.
  void AddFirst(int32_t id);
  void Add(const v1::PositionLogprobs& position);
  // {"tokens", "token_logprobs", "top_logprobs", "text_offset"} of what was added since the last.
  boost::json::object Take();

 private:
  void AddToken(int32_t id, std::string_view bytes);

  const text::Tokenizer* tokenizer_;
  bool skip_special_tokens_;
  boost::json::array tokens_;
  boost::json::array logprobs_;
  boost::json::array tops_;
  boost::json::array offsets_;
  size_t n_characters_ = 0;  // of the text before the next token
};

// [null, {"ID": {"logprob", "rank", "decoded_token"}}, ...], one for each prompt token.
boost::json::array PromptLogprobs(const PositionList& positions);

// Whole characters; U+FFFD for what is none.
std::string ReadableToken(std::string_view bytes);

}  // namespace stagecoach::router::http
