// Log-probabilities in the formats of OpenAI's two APIs and of other servers' prompt_logprobs.
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

// {"token", "logprob", "bytes", "top_logprobs": [{"token", "logprob", "bytes"}]} per position.
boost::json::array ChatLogprobs(const PositionList& positions);

// For /v1/completions: four arrays of equal length that grow with the text. A token that is not
// whole UTF-8 characters is written as "bytes:\xe2\x80".
class CompletionLogprobs {
 public:
  // `tokenizer` outlives this. `skip_special_tokens`: special tokens are not part of the text.
  CompletionLogprobs(const text::Tokenizer* tokenizer, bool skip_special_tokens)
      : tokenizer_(tokenizer), skip_special_tokens_(skip_special_tokens) {}

  // Adds a prompt's first token, which has no logprob.
  void AddFirst(int32_t id);
  void Add(const v1::PositionLogprobs& position);
  // {"tokens", "token_logprobs", "top_logprobs", "text_offset"} of the positions added since the
  // last call.
  boost::json::object Take();

 private:
  void AddToken(int32_t id, std::string_view bytes);

  const text::Tokenizer* tokenizer_;
  bool skip_special_tokens_;
  boost::json::array tokens_;
  boost::json::array logprobs_;
  boost::json::array tops_;
  boost::json::array offsets_;
  size_t n_characters_ = 0;  // characters of text before the next token
};

// [null, {"ID": {"logprob", "rank", "decoded_token"}}, ...], one entry per prompt token.
boost::json::array PromptLogprobs(const PositionList& positions);

// The token as UTF-8; U+FFFD replaces invalid bytes.
std::string ReadableToken(std::string_view bytes);

}  // namespace stagecoach::router::http
