#include "router/text/logprobs.h"

#include <string>

namespace stagecoach::router {
namespace {

void Fill(const text::Tokenizer& tokenizer, int32_t token, float logprob, v1::TokenLogprob* out) {
  out->set_token_id(token);
  out->set_logprob(logprob);
  out->set_token(std::string(tokenizer.TokenBytes(token)));
}

}  // namespace

void FillLogprobs(const text::Tokenizer& tokenizer, int32_t token, const v1::Logprobs& logprobs,
                  v1::PositionLogprobs* out) {
  Fill(tokenizer, token, logprobs.chosen(), out->mutable_chosen());
  for (int i = 0; i < logprobs.top_size(); ++i) {
    Fill(tokenizer, logprobs.top_ids(i), logprobs.top(i), out->add_top());
  }
}

}  // namespace stagecoach::router
