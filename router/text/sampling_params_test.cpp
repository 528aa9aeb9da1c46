#include "router/text/sampling_params.h"

#include <cmath>
#include <functional>
#include <limits>
#include <set>

#include "catch2/catch_test_macros.hpp"
#include "router/text/testing/test_model.h"

namespace stagecoach::router {
namespace {

constexpr size_t kPromptTokens = 10;

std::string Refusal(const std::function<void(v1::SamplingParams&)>& change) {
  const ServedModel model = TestModel();
  v1::SamplingParams params;
  change(params);
  const auto resolved = ResolveSampling(model, params, kPromptTokens);
  REQUIRE_FALSE(resolved.ok());
  REQUIRE(absl::IsInvalidArgument(resolved.status()));
  return std::string(resolved.status().message());
}

// `change` is refused with a message that names `field`.
void CheckRefused(const std::string& field,
                  const std::function<void(v1::SamplingParams&)>& change) {
  const std::string message = Refusal(change);
  INFO(message);
  CHECK(message.starts_with("sampling." + field + ":"));
}

ResolvedSampling Resolve(const ServedModel& model, const v1::SamplingParams& params) {
  auto resolved = ResolveSampling(model, params, kPromptTokens);
  INFO(resolved.status().ToString());
  REQUIRE(resolved.ok());
  return *resolved;
}

TEST_CASE("for a sampling value out of range, the error names the field") {
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  constexpr float kInf = std::numeric_limits<float>::infinity();
  for (const float bad : {-0.1f, kNan, kInf, -kInf}) {
    CheckRefused("temperature", [=](auto& p) { p.set_temperature(bad); });
  }
  for (const float bad : {0.0f, -0.5f, 1.01f, kNan, kInf}) {
    CheckRefused("top_p", [=](auto& p) { p.set_top_p(bad); });
  }
  for (const float bad : {-0.1f, 1.1f, kNan, kInf}) {
    CheckRefused("min_p", [=](auto& p) { p.set_min_p(bad); });
  }
  for (const float bad : {-1.1f, kNan, kInf}) {
    CheckRefused("top_n_sigma", [=](auto& p) { p.set_top_n_sigma(bad); });
  }
  for (const float bad : {-2.1f, 2.1f, kNan, kInf}) {
    CheckRefused("presence_penalty", [=](auto& p) { p.set_presence_penalty(bad); });
    CheckRefused("frequency_penalty", [=](auto& p) { p.set_frequency_penalty(bad); });
  }
  for (const float bad : {0.0f, -1.0f, kNan, kInf}) {
    CheckRefused("repetition_penalty", [=](auto& p) { p.set_repetition_penalty(bad); });
  }
  for (const float bad : {-100.5f, 101.0f, kNan, kInf}) {
    CheckRefused("logit_bias[7]", [=](auto& p) { (*p.mutable_logit_bias())[7] = bad; });
  }
  CheckRefused("top_k", [](auto& p) { p.set_top_k(-2); });
  CheckRefused("n", [](auto& p) { p.set_n(0); });
  CheckRefused("n", [](auto& p) { p.set_n(129); });
  CheckRefused("max_tokens", [](auto& p) { p.set_max_tokens(0); });
  CheckRefused("min_tokens", [](auto& p) {
    p.set_max_tokens(4);
    p.set_min_tokens(5);
  });
  CheckRefused("logprobs", [](auto& p) { p.set_logprobs(6); });
  CheckRefused("prompt_logprobs", [](auto& p) { p.set_prompt_logprobs(6); });
}

TEST_CASE("token ids outside the vocabulary are refused in every field") {
  const int32_t vocab_size = TestModel().spec.vocab_size;
  for (const int32_t bad : {-1, vocab_size, std::numeric_limits<int32_t>::max()}) {
    CheckRefused("stop_token_ids", [=](auto& p) { p.add_stop_token_ids(bad); });
    CheckRefused("logit_bias", [=](auto& p) { (*p.mutable_logit_bias())[bad] = 1.0f; });
  }
  CheckRefused("stop_token_ids", [](auto& p) {
    for (int i = 0; i <= kMaxStopTokens; ++i) p.add_stop_token_ids(3);
  });
  CheckRefused("logit_bias", [](auto& p) {
    for (int i = 0; i <= kMaxBiases; ++i) (*p.mutable_logit_bias())[i] = 0;
  });
}

TEST_CASE("stop strings are bounded in number and length, valid UTF-8 and not empty") {
  CheckRefused("stop[1]", [](auto& p) {
    p.mutable_stop()->Add("fine");
    p.mutable_stop()->Add("");
  });
  CheckRefused("stop[0]", [](auto& p) { p.add_stop(std::string(257, 'x')); });
  CheckRefused("stop[0]", [](auto& p) { p.mutable_stop()->Add("\xC3"); });
  CheckRefused("stop", [](auto& p) {
    for (int i = 0; i < 17; ++i) p.mutable_stop()->Add("x");
  });
  v1::SamplingParams params;
  for (int i = 0; i < 16; ++i) params.add_stop(std::string(256, 'x'));
  CHECK(Resolve(TestModel(), params).stop.size() == 16);
}

TEST_CASE("for too many new tokens, the error shows the numbers") {
  CHECK(Refusal([](auto& p) { p.set_max_tokens(247); }) ==
        "sampling.max_tokens: 247 new tokens do not fit after a prompt of 10: this model's maximum "
        "context length is 256 tokens");
  const auto full = ResolveSampling(TestModel(), {}, 256);
  CHECK(
      full.status().message() ==
      "prompt: 256 tokens leave no room for a new one: this model's maximum context length is 256 "
      "tokens");
  CHECK(ResolveSampling(TestModel(), {}, 255)->max_tokens == 1);
}

TEST_CASE("a request may ask for more new tokens than fit, if it says so") {
  v1::SamplingParams params;
  params.set_clamp_max_tokens(true);
  params.set_max_tokens(32000);
  CHECK(ResolveSampling(TestModel(), params, 10)->max_tokens == 246);
  params.set_max_tokens(5);
  CHECK(ResolveSampling(TestModel(), params, 10)->max_tokens == 5);
  CHECK_FALSE(ResolveSampling(TestModel(), params, 256).ok());
}

TEST_CASE("the log-probabilities of an answer are limited over all choices") {
  ServedModel model = TestModel();
  model.max_model_len = 10'000;
  const auto refusal = [&](const v1::SamplingParams& params, size_t n_prompt_tokens) {
    return std::string(ResolveSampling(model, params, n_prompt_tokens).status().message());
  };
  v1::SamplingParams params;
  params.set_n(128);
  params.set_max_tokens(8192);
  params.set_logprobs(3);
  CHECK(refusal(params, 10).empty());
  params.set_max_tokens(8193);
  CHECK(refusal(params, 10) ==
        "sampling.logprobs: 128 choices of up to 8193 new tokens after a prompt of 10 may have "
        "4194816 log-probabilities; at most 4194304 are allowed in an answer: ask for fewer of n, "
        "max_tokens, logprobs or prompt_logprobs");
  params.set_n(1);
  CHECK(refusal(params, 10).empty());

  params.set_n(128);
  params.set_max_tokens(1);
  params.clear_logprobs();
  params.set_prompt_logprobs(3);
  CHECK(refusal(params, 8192).empty());
  CHECK(refusal(params, 8193).starts_with("sampling.prompt_logprobs: "));
  params.clear_prompt_logprobs();
  params.set_max_tokens(9000);
  CHECK(refusal(params, 10).empty());
}

TEST_CASE("values at the ends of their ranges are accepted") {
  v1::SamplingParams params;
  params.set_temperature(0);
  params.set_top_k(-1);
  params.set_top_p(1);
  params.set_min_p(1);
  params.set_presence_penalty(-2);
  params.set_frequency_penalty(2);
  params.set_repetition_penalty(0.01f);
  params.set_n(128);
  params.set_max_tokens(246);
  params.set_min_tokens(246);
  params.set_logprobs(5);
  params.set_prompt_logprobs(0);
  (*params.mutable_logit_bias())[400] = -100;
  (*params.mutable_logit_bias())[2] = 100;
  params.set_seed(std::numeric_limits<uint64_t>::max());
  const ResolvedSampling resolved = Resolve(TestModel(), params);
  CHECK(resolved.n == 128);
  CHECK(resolved.max_tokens == 246);
  CHECK(resolved.slot.top_k() == 0);
  CHECK(resolved.slot.n_logprobs() == 5);
  CHECK(resolved.slot.n_prompt_logprobs() == 0);
  CHECK(resolved.slot.seed() == std::numeric_limits<uint64_t>::max());
  REQUIRE(resolved.slot.bias_ids_size() == 2);
  CHECK(resolved.slot.bias_ids(0) == 2);
  CHECK(resolved.slot.bias_values(1) == -100);
}

TEST_CASE("absent fields get the checkpoint's defaults, then the protocol's") {
  ServedModel model = TestModel();
  ResolvedSampling resolved = Resolve(model, {});
  CHECK(resolved.slot.temperature() == 1);
  CHECK(resolved.slot.top_k() == 0);
  CHECK(resolved.slot.top_p() == 1);
  CHECK(resolved.slot.min_p() == 0);
  CHECK(resolved.slot.repetition_penalty() == 1);
  CHECK(resolved.slot.n_logprobs() == -1);
  CHECK(resolved.slot.n_prompt_logprobs() == -1);
  CHECK(resolved.n == 1);
  CHECK(resolved.max_tokens == 246);

  model.defaults.sampling = {{"temperature", 0.6},
                             {"top_k", 64},
                             {"top_p", 0.9},
                             {"min_p", 0.1},
                             {"repetition_penalty", 1.1}};
  model.defaults.max_new_tokens = 20;
  resolved = Resolve(model, {});
  CHECK(resolved.slot.temperature() == 0.6f);
  CHECK(resolved.slot.top_k() == 64);
  CHECK(resolved.slot.top_p() == 0.9f);
  CHECK(resolved.slot.min_p() == 0.1f);
  CHECK(resolved.slot.repetition_penalty() == 1.1f);
  CHECK(resolved.max_tokens == 20);

  v1::SamplingParams params;
  params.set_temperature(0);
  params.set_top_k(0);
  params.set_max_tokens(30);
  resolved = Resolve(model, params);
  CHECK(resolved.slot.temperature() == 0);
  CHECK(resolved.slot.top_k() == 0);
  CHECK(resolved.max_tokens == 30);
}

TEST_CASE("EOS ids end a sequence unless ignore_eos is set") {
  v1::SamplingParams params;
  params.add_stop_token_ids(9);
  params.add_stop_token_ids(1);
  ResolvedSampling resolved = Resolve(TestModel(), params);
  CHECK(std::vector<int32_t>(resolved.slot.stop_ids().begin(), resolved.slot.stop_ids().end()) ==
        std::vector<int32_t>{1, 9});
  params.set_ignore_eos(true);
  params.clear_stop_token_ids();
  CHECK(Resolve(TestModel(), params).slot.stop_ids().empty());
}

TEST_CASE("seeds differ by choice and, if not given, by request") {
  std::set<uint64_t> seeds;
  for (uint32_t choice = 0; choice < kMaxChoices; ++choice) seeds.insert(ChoiceSeed(42, choice));
  CHECK(seeds.size() == kMaxChoices);
  CHECK(ChoiceSeed(42, 0) == 42);
  CHECK(Resolve(TestModel(), {}).slot.seed() != Resolve(TestModel(), {}).slot.seed());
}

}  // namespace
}  // namespace stagecoach::router
