#include "router/text/sampling_params.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <random>

#include "common/number_fields.h"
#include "common/sampling_numbers.h"
#include "common/status.h"
#include "common/text/utf8.h"
#include "router/text/error_code.h"
#include "router/text/grammar_params.h"

namespace stagecoach::router {
namespace {

template <typename... Args>
absl::Status Bad(std::string_view field, fmt::format_string<Args...> format, Args&&... args) {
  return absl::InvalidArgumentError(
      fmt::format("sampling.{}: {}", field, fmt::format(format, std::forward<Args>(args)...)));
}

// NaN is in no range.
absl::Status CheckRange(std::string_view field, float value, float low, float high) {
  if (value >= low && value <= high) return absl::OkStatus();
  return Bad(field, "{} is not in [{}, {}]", value, low, high);
}

absl::Status CheckVocabulary(std::string_view field, int32_t id, const ServedModel& model) {
  if (id >= 0 && id < model.spec.vocab_size) return absl::OkStatus();
  return Bad(field, "token id {} is outside the vocabulary of {}", id, model.spec.vocab_size);
}

// `value`: an int32 or a float, depending on number.is_integer.
std::string ValueText(const SamplingNumber& number, double value) {
  return number.is_integer ? fmt::format("{:.0f}", value)
                           : fmt::format("{}", static_cast<float>(value));
}

absl::Status ResolveDistribution(const ServedModel& model, const v1::SamplingParams& params,
                                 v1::SlotSampling& slot) {
  for (const SamplingNumber& number : kSamplingNumbers) {
    double value = number.absent;
    const auto of_model = model.defaults.sampling.find(number.name);
    if (HasNumber(params, number.name)) {
      value = GetNumber(params, number.name);
    } else if (of_model != model.defaults.sampling.end()) {
      value = of_model->second;
    }
    SetNumber(slot, number.name, value);
    value = GetNumber(slot, number.name);  // rounding a checkpoint's double may leave the range
    if (!number.Holds(value)) {
      return Bad(number.name, "{} is not {}", ValueText(number, value), RangeText(number));
    }
  }
  if (slot.top_k() == -1 || slot.top_k() >= model.spec.vocab_size) slot.set_top_k(0);
  return absl::OkStatus();
}

absl::Status ResolveBias(const ServedModel& model, const v1::SamplingParams& params,
                         v1::SlotSampling& slot) {
  if (params.logit_bias_size() > kMaxBiases) {
    return Bad("logit_bias", "{} entries; at most {} are allowed", params.logit_bias_size(),
               kMaxBiases);
  }
  // The wire's map has no order; the plan's bytes should not depend on it.
  const std::map<int32_t, float> sorted(params.logit_bias().begin(), params.logit_bias().end());
  for (const auto& [id, bias] : sorted) {
    SC_RETURN_IF_ERROR(CheckVocabulary("logit_bias", id, model));
    SC_RETURN_IF_ERROR(CheckRange(fmt::format("logit_bias[{}]", id), bias, -100, 100));
    slot.add_bias_ids(id);
    slot.add_bias_values(bias);
  }
  return absl::OkStatus();
}

absl::Status ResolveStopTokens(const ServedModel& model, const v1::SamplingParams& params,
                               v1::SlotSampling& slot) {
  if (params.stop_token_ids_size() > kMaxStopTokens) {
    return Bad("stop_token_ids", "{} ids; at most {} are allowed", params.stop_token_ids_size(),
               kMaxStopTokens);
  }
  std::vector<int32_t> ids;
  for (const int32_t id : params.stop_token_ids()) {
    SC_RETURN_IF_ERROR(CheckVocabulary("stop_token_ids", id, model));
    ids.push_back(id);
  }
  if (!params.ignore_eos()) {
    for (const int32_t id : model.defaults.eos_ids) {
      if (id >= 0 && id < model.spec.vocab_size) ids.push_back(id);
    }
  }
  std::sort(ids.begin(), ids.end());
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
  slot.mutable_stop_ids()->Add(ids.begin(), ids.end());
  return absl::OkStatus();
}

absl::Status ResolveStopStrings(const v1::SamplingParams& params, std::vector<std::string>& stop) {
  if (params.stop_size() > kMaxStopStrings) {
    return Bad("stop", "{} strings; at most {} are allowed", params.stop_size(), kMaxStopStrings);
  }
  for (int i = 0; i < params.stop_size(); ++i) {
    const std::string& text = params.stop(i);
    const std::string field = fmt::format("stop[{}]", i);
    if (text.empty()) return Bad(field, "is empty");
    if (text.size() > kMaxStopStringBytes) {
      return Bad(field, "{} bytes; at most {} are allowed", text.size(), kMaxStopStringBytes);
    }
    SC_RETURN_IF_ERROR(text::CheckUtf8("sampling." + field, text));
    stop.push_back(text);
  }
  return absl::OkStatus();
}

absl::Status ResolveLengths(const ServedModel& model, const v1::SamplingParams& params,
                            size_t n_prompt_tokens, ResolvedSampling& resolved) {
  const uint64_t context = model.max_model_len;
  if (n_prompt_tokens >= context) {
    return WithErrorCode(absl::InvalidArgumentError(fmt::format(
                             "prompt: {} tokens leave no room for a new one: this model's maximum "
                             "context length is {} tokens",
                             n_prompt_tokens, context)),
                         kContextLengthExceeded);
  }
  const uint64_t room = context - n_prompt_tokens;
  if (params.has_max_tokens()) {
    if (params.max_tokens() == 0) return Bad("max_tokens", "0 {}", kMaxTokensRange);
    if (params.max_tokens() > room && !params.clamp_max_tokens()) {
      return WithErrorCode(
          Bad("max_tokens",
              "{} new tokens do not fit after a prompt of {}: this model's maximum "
              "context length is {} tokens",
              params.max_tokens(), n_prompt_tokens, context),
          kContextLengthExceeded);
    }
    resolved.max_tokens = static_cast<uint32_t>(std::min<uint64_t>(params.max_tokens(), room));
  } else {
    const int32_t most = model.defaults.max_new_tokens.value_or(0);
    resolved.max_tokens = static_cast<uint32_t>(most > 0 ? std::min<uint64_t>(most, room) : room);
  }
  if (params.min_tokens() > resolved.max_tokens) {
    return Bad("min_tokens", "{} is more than max_tokens, {}", params.min_tokens(),
               resolved.max_tokens);
  }
  resolved.slot.set_min_tokens(params.min_tokens());
  return absl::OkStatus();
}

// -1 when not asked for.
absl::StatusOr<int32_t> ResolveLogprobs(const ServedModel& model, std::string_view field,
                                        bool asked, uint32_t n) {
  if (!asked) return -1;
  if (n > static_cast<uint32_t>(model.max_logprobs)) {
    return Bad(field, "{} is more than this server's maximum, {}", n, model.max_logprobs);
  }
  return std::min<int32_t>(n, model.spec.vocab_size);
}

absl::Status BoundLogprobs(size_t n_prompt_tokens, ResolvedSampling& resolved) {
  const uint64_t of_new = resolved.slot.n_logprobs() + 1;  // 0: not asked for
  const uint64_t of_prompt = resolved.slot.n_prompt_logprobs() + 1;
  resolved.n_logprobs = resolved.n * (resolved.max_tokens * of_new + n_prompt_tokens * of_prompt);
  if (resolved.n_logprobs <= kMaxLogprobs) return absl::OkStatus();
  return Bad(
      of_new > 0 ? "logprobs" : "prompt_logprobs",
      "{} choices of up to {} new tokens after a prompt of {} may have {} log-probabilities; "
      "at most {} are allowed in an answer: ask for fewer of n, max_tokens, logprobs or "
      "prompt_logprobs",
      resolved.n, resolved.max_tokens, n_prompt_tokens, resolved.n_logprobs, kMaxLogprobs);
}

uint64_t DrawSeed() {
  thread_local std::mt19937_64 generator([] {
    std::random_device device;
    return uint64_t(device()) << 32 | device();
  }());
  return generator();
}

}  // namespace

absl::StatusOr<ResolvedSampling> ResolveSampling(const ServedModel& model,
                                                 const v1::SamplingParams& params,
                                                 size_t n_prompt_tokens,
                                                 const GrammarUse& grammar_use) {
  ResolvedSampling resolved;
  v1::SlotSampling& slot = resolved.slot;
  SC_RETURN_IF_ERROR(ResolveDistribution(model, params, slot));
  SC_RETURN_IF_ERROR(ResolveBias(model, params, slot));
  SC_RETURN_IF_ERROR(ResolveStopTokens(model, params, slot));
  SC_RETURN_IF_ERROR(ResolveStopStrings(params, resolved.stop));
  SC_RETURN_IF_ERROR(ResolveLengths(model, params, n_prompt_tokens, resolved));
  if (params.has_n() && (params.n() < 1 || params.n() > kMaxChoices)) {
    return Bad("n", "{} is not in [1, {}]", params.n(), kMaxChoices);
  }
  resolved.n = params.has_n() ? params.n() : 1;
  SC_ASSIGN_OR_RETURN(const int32_t n_logprobs,
                      ResolveLogprobs(model, "logprobs", params.has_logprobs(), params.logprobs()));
  slot.set_n_logprobs(n_logprobs);
  SC_ASSIGN_OR_RETURN(const int32_t n_prompt_logprobs,
                      ResolveLogprobs(model, "prompt_logprobs", params.has_prompt_logprobs(),
                                      params.prompt_logprobs()));
  slot.set_n_prompt_logprobs(n_prompt_logprobs);
  SC_RETURN_IF_ERROR(BoundLogprobs(n_prompt_tokens, resolved));
  slot.set_seed(params.has_seed() ? params.seed() : DrawSeed());
  // Last: it takes the longest.
  if (params.has_grammar()) {
    SC_RETURN_IF_ERROR(ResolveGrammar(model, params, grammar_use, slot));
  }
  return resolved;
}

void FixSeed(v1::SamplingParams& params) {
  if (!params.has_seed()) params.set_seed(DrawSeed());
}

uint64_t ChoiceSeed(uint64_t seed, uint32_t choice) {
  if (choice == 0) return seed;
  // SplitMix64 (Steele, Lea and Flood 2014), `choice` steps on from the seed.
  uint64_t z = seed + choice * 0x9E3779B97F4A7C15u;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  return z ^ (z >> 31);
}

}  // namespace stagecoach::router
