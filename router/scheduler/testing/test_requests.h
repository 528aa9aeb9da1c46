// Requests for tests.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <numeric>
#include <utility>
#include <vector>

#include "router/scheduler/request.h"
#include "router/scheduler/testing/strict_stage.h"

namespace stagecoach::router {

// A prompt of n_prompt tokens that depends on the id, no stop ids, no logprobs, no sink.
inline std::unique_ptr<SequenceRequest> MakeRequest(SequenceId id, int n_prompt, int max_tokens) {
  auto request = std::make_unique<SequenceRequest>();
  request->id = id;
  std::vector<int32_t> prompt;
  for (int i = 0; i < n_prompt; ++i) {
    prompt.push_back(static_cast<int32_t>((id * 7 + static_cast<uint64_t>(i) * 13) %
                                          TokenSource::kVocabularySize));
  }
  request->prompt = std::make_shared<const std::vector<int32_t>>(std::move(prompt));
  request->max_tokens = static_cast<uint32_t>(max_tokens);
  request->sampling.set_seed(id * 1'000'003);
  request->sampling.set_n_logprobs(-1);
  request->sampling.set_n_prompt_logprobs(-1);
  return request;
}

// Gives `request` the first n tokens of `like` in place of its own.
inline void BeginLike(const SequenceRequest& like, int n, SequenceRequest& request) {
  std::vector<int32_t> prompt = *request.prompt;
  std::copy_n(like.prompt->begin(), n, prompt.begin());
  request.prompt = std::make_shared<const std::vector<int32_t>>(std::move(prompt));
}

// first, first + 1, ...
inline std::vector<int32_t> TokenRange(size_t n, int32_t first = 0) {
  std::vector<int32_t> tokens(n);
  std::iota(tokens.begin(), tokens.end(), first);
  return tokens;
}

// One request as the argument of Submit.
inline std::vector<std::unique_ptr<SequenceRequest>> Alone(
    std::unique_ptr<SequenceRequest> request) {
  std::vector<std::unique_ptr<SequenceRequest>> requests;
  requests.push_back(std::move(request));
  return requests;
}

}  // namespace stagecoach::router
