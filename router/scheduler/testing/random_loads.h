// Random configurations and requests, and the check of what becomes of the requests.
#pragma once

#include <algorithm>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "catch2/catch_test_macros.hpp"
#include "router/scheduler/kv_blocks.h"
#include "router/scheduler/testing/recording_sink.h"
#include "router/scheduler/testing/test_requests.h"

namespace stagecoach::router {

struct Expected {
  std::shared_ptr<RecordingSink> sink;
  std::vector<int32_t> tokens;
  uint32_t n_prompt;
  bool prompt_logprobs;
  bool logprobs;
  bool cancelled = false;
};

// Whether the sequence was blamed for losses of the pipeline. In a random load it may be.
inline bool IsBlamed(const RecordingSink::Record& record) { return absl::IsInternal(record.error); }

inline int Pick(std::mt19937_64& random, int least, int most) {
  return std::uniform_int_distribution<int>(least, most)(random);
}

inline SchedulerConfig RandomConfig(std::mt19937_64& random) {
  SchedulerConfig config;
  config.n_microbatches = 1 << Pick(random, 0, 2);
  config.max_sequences = Pick(random, 1, 24);
  config.max_batched_tokens = Pick(random, 1, 5) == 1 ? Pick(random, 1, 8) : Pick(random, 16, 200);
  config.max_prefill_chunk = Pick(random, 1, 4) == 1 ? Pick(random, 1, 16) : Pick(random, 16, 200);
  config.max_model_len = Pick(random, 40, 400);
  config.max_waiting = 100000;
  config.plan_ahead = Pick(random, 0, 3) > 0;
  config.prefix_cache = Pick(random, 0, 7) > 0;
  config.epoch = static_cast<uint64_t>(Pick(random, 1, 9));
  if (Pick(random, 0, 2) == 0) config.preempt_every = Pick(random, 1, 20);
  const int n_groups = Pick(random, 1, 3);
  const auto chunk =
      static_cast<uint32_t>(std::min(config.max_prefill_chunk, config.max_batched_tokens));
  for (int g = 0; g < n_groups; ++g) {
    SchedulerConfig::KvGroup group;
    if (Pick(random, 0, 1) == 1) {
      group.window = KeyWindow(Pick(random, 1, 100), /*by_chunk=*/Pick(random, 0, 1) == 1);
    }
    const uint32_t least = KvBlocks({{group.window, 0}}, chunk)
                               .MostHeld(0, static_cast<uint32_t>(config.max_model_len));
    group.n_blocks = least + static_cast<uint32_t>(Pick(random, 0, 3) * Pick(random, 0, 20));
    config.kv_groups.push_back(group);
  }
  config.break_even_rows = Pick(random, 1, 300);
  return config;
}

// Sometimes makes the model one with recurrent layers.
inline void MaybeRecurrent(std::mt19937_64& random, SchedulerConfig& config) {
  if (Pick(random, 0, 2) > 0) return;
  config.is_recurrent = true;
  config.n_states = static_cast<uint64_t>(config.max_sequences + Pick(random, 0, 20));
}

inline std::unique_ptr<SequenceRequest> RandomRequest(std::mt19937_64& random, SequenceId id,
                                                      const SchedulerConfig& config) {
  const int n_prompt = Pick(random, 1, config.max_model_len - 1);
  const int most = config.max_model_len - n_prompt;
  auto request = MakeRequest(id, n_prompt, Pick(random, 1, std::min(most, 60)));
  if (Pick(random, 0, 2) > 0) {
    // One of a few common prefixes.
    const auto like = MakeRequest(static_cast<SequenceId>(Pick(random, 1, 2)), n_prompt, 1);
    BeginLike(*like, Pick(random, 0, n_prompt), *request);
  }
  if (Pick(random, 0, 3) == 0) request->cache_salt = "a";
  const int tenant = Pick(random, 0, 5);
  if (tenant < 3) request->account = {std::string(1, static_cast<char>('a' + tenant)), 1u + tenant};
  request->priority = Pick(random, 0, 3) == 0 ? Pick(random, -1, 2) : 0;
  if (Pick(random, 0, 1) == 1) request->sampling.add_stop_ids(Pick(random, 0, 63));
  if (Pick(random, 0, 3) == 0) {
    request->sampling.set_min_tokens(static_cast<uint32_t>(Pick(random, 0, 20)));
  }
  if (Pick(random, 0, 4) == 0) request->sampling.set_n_prompt_logprobs(0);
  if (Pick(random, 0, 4) == 0) request->sampling.set_n_logprobs(1);
  return request;
}

inline Expected Expect(SequenceRequest& request, const SchedulerConfig& config) {
  auto sink = std::make_shared<RecordingSink>();
  request.sink = sink;
  return {sink, TokensAlone(request, config.max_model_len),
          static_cast<uint32_t>(request.prompt->size()), request.sampling.n_prompt_logprobs() >= 0,
          request.sampling.n_logprobs() >= 0};
}

inline void CheckOutcome(const Expected& expected) {
  const RecordingSink::Record record = expected.sink->record();
  REQUIRE(record.n_after_end == 0);
  if (!IsBlamed(record)) REQUIRE(record.error.ok());
  REQUIRE(record.tokens.size() <= expected.tokens.size());
  REQUIRE(std::equal(record.tokens.begin(), record.tokens.end(), expected.tokens.begin()));
  if (!expected.cancelled && !IsBlamed(record)) {
    REQUIRE(record.finish != Finish::kNone);
    REQUIRE(record.tokens.size() == expected.tokens.size());
    REQUIRE(record.prompt_logprobs.size() ==
            (expected.prompt_logprobs ? expected.n_prompt - 1 : 0));
  }
  for (size_t i = 0; i < record.prompt_logprobs.size(); ++i) {
    REQUIRE(record.prompt_logprobs[i] == static_cast<float>(i + 1));
  }
  REQUIRE(record.logprobs.size() == (expected.logprobs ? record.tokens.size() : 0));
  for (size_t i = 0; i < record.logprobs.size(); ++i) {
    REQUIRE(record.logprobs[i] == static_cast<float>(-record.tokens[i]));
  }
}

inline std::string Describe(const SchedulerConfig& config) {
  std::string text = absl::StrCat(
      "stages ", config.n_microbatches, " sequences ", config.max_sequences, " batch ",
      config.max_batched_tokens, " chunk ", config.max_prefill_chunk, " len ", config.max_model_len,
      " ahead ", config.plan_ahead, " preempt ", config.preempt_every);
  if (config.is_recurrent) absl::StrAppend(&text, " states ", config.n_states);
  for (const auto& group : config.kv_groups) {
    absl::StrAppend(&text, " [", group.n_blocks, group.window.is_chunk ? " chunk " : " window ",
                    group.window.size, "]");
  }
  return text;
}

}  // namespace stagecoach::router
