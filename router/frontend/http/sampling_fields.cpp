#include "router/frontend/http/sampling_fields.h"

#include <fmt/format.h>

#include <boost/json.hpp>
#include <charconv>
#include <limits>

#include "common/number_fields.h"
#include "common/sampling_numbers.h"
#include "router/frontend/http/foreign_fields.h"
#include "router/frontend/http/grammar_fields.h"
#include "router/text/sampling_params.h"

namespace stagecoach::router::http {
namespace {

namespace json = boost::json;

constexpr int64_t kMaxUint32 = std::numeric_limits<uint32_t>::max();

// OpenAI's names for the most tokens of an answer, and those of other servers. The first one that
// is given counts.
struct MaxTokensName {
  const char* name;
  int64_t unlimited = 0;  // down from -1: no limit but the context's
};
constexpr MaxTokensName kMaxTokensNames[] = {{"max_completion_tokens"}, {"max_tokens"},
                                             {"max_new_tokens"},        {"max_output_tokens"},
                                             {"n_predict", -1},         {"num_predict", -2}};

void ReadMaxTokens(JsonFields& fields, v1::SamplingParams& sampling, ApiRequest& request) {
  for (const MaxTokensName& one : kMaxTokensNames) {
    const json::value* value = fields.Any(one.name);
    if (value == nullptr) continue;
    if (!value->is_number()) {
      return fields.Refuse(one.name, fmt::format("must be an integer, not {}", KindName(*value)));
    }
    request.max_tokens_name = one.name;
    if (const auto most = ToInteger(*value, 0, kMaxUint32)) {
      sampling.set_max_tokens(static_cast<uint32_t>(*most));
    } else if (one.unlimited < 0 && ToInteger(*value, one.unlimited, -1)) {
      request.is_unlimited = true;
    } else {
      fields.Refuse(one.name, fmt::format("{} {}", NumberText(*value), kMaxTokensRange));
    }
    return;
  }
}

void ReadSeed(JsonFields& fields, v1::SamplingParams& sampling) {
  const json::value* seed = fields.Any("seed");
  if (seed == nullptr) return;
  if (seed->is_uint64()) {
    sampling.set_seed(seed->get_uint64());
  } else if (const auto value = fields.Integer("seed", std::numeric_limits<int64_t>::min(),
                                               std::numeric_limits<int64_t>::max())) {
    sampling.set_seed(static_cast<uint64_t>(*value));
  }
}

void ReadStop(JsonFields& fields, v1::SamplingParams& sampling, ApiRequest& request) {
  const json::value* stop = fields.Any("stop");
  if (stop == nullptr) return;
  if (stop->is_string()) {
    request.stop_is_string = true;
    sampling.add_stop(std::string(stop->get_string()));
    return;
  }
  if (!stop->is_array()) {
    return fields.Refuse(
        "stop", fmt::format("must be a string or an array of strings, not {}", KindName(*stop)));
  }
  for (size_t i = 0; i < stop->get_array().size(); ++i) {
    const json::value& one = stop->get_array()[i];
    if (!one.is_string()) {
      return fields.Refuse(fmt::format("stop[{}]", i),
                           fmt::format("must be a string, not {}", KindName(one)));
    }
    sampling.add_stop(std::string(one.get_string()));
  }
}

void ReadStopTokens(JsonFields& fields, v1::SamplingParams& sampling) {
  const json::array* ids = fields.Array("stop_token_ids");
  if (ids == nullptr) return;
  for (size_t i = 0; i < ids->size(); ++i) {
    const auto id = ToInteger((*ids)[i], kMinInt32, kMaxInt32);
    if (!id) return fields.Refuse(fmt::format("stop_token_ids[{}]", i), "is not a token id");
    sampling.add_stop_token_ids(static_cast<int32_t>(*id));
  }
}

void ReadBias(JsonFields& fields, v1::SamplingParams& sampling) {
  const json::object* biases = fields.Object("logit_bias");
  if (biases == nullptr) return;
  for (const auto& [key, value] : *biases) {
    int32_t id = 0;
    const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), id);
    if (error != std::errc() || end != key.data() + key.size()) {
      return fields.Refuse("logit_bias",
                           fmt::format("'{}' is not a token id", std::string_view(key)));
    }
    if (!value.is_number()) {
      return fields.Refuse(fmt::format("logit_bias[{}]", id),
                           fmt::format("must be a number, not {}", KindName(value)));
    }
    (*sampling.mutable_logit_bias())[id] = value.to_number<float>();
  }
}

// True: all; else paths.
void ReadJsonEvents(JsonFields& options, ApiRequest& request) {
  constexpr char kName[] = "json_events";
  const json::value* events = options.Any(kName);
  if (events == nullptr) return;
  if (events->is_bool()) {
    if (events->get_bool()) request.json_events.emplace();
    return;
  }
  if (!events->is_array() || events->get_array().empty()) {
    return options.Refuse(kName, "must be true or an array of paths");
  }
  v1::JsonEvents& wanted = request.json_events.emplace();
  for (size_t i = 0; i < events->get_array().size(); ++i) {
    const json::value& path = events->get_array()[i];
    if (!path.is_string()) {
      return options.Refuse(fmt::format("{}[{}]", kName, i),
                            fmt::format("must be a string, not {}", KindName(path)));
    }
    wanted.add_paths(std::string(path.get_string()));
  }
}

}  // namespace

v1::SamplingParams ReadSampling(JsonFields& fields, ApiRequest& request) {
  v1::SamplingParams sampling;
  const auto count = [&fields](const char* name, auto set) {
    if (const auto value = fields.Integer(name, 0, kMaxUint32)) set(static_cast<uint32_t>(*value));
  };
  for (const SamplingNumber& number : kSamplingNumbers) {
    if (!number.is_integer) {
      if (const auto v = fields.Number(number.name)) SetNumber(sampling, number.name, *v);
    } else if (const auto v = fields.Integer(number.name, kMinInt32, kMaxInt32)) {
      SetNumber(sampling, number.name, static_cast<double>(*v));
    }
  }
  // At once: an answer is made for so many before anything else is checked.
  if (const auto n = fields.Integer("n", 1, kMaxChoices)) {
    sampling.set_n(static_cast<uint32_t>(*n));
  }
  ReadMaxTokens(fields, sampling, request);
  count("min_new_tokens", [&](uint32_t v) { sampling.set_min_tokens(v); });
  count("min_tokens", [&](uint32_t v) { sampling.set_min_tokens(v); });
  count("prompt_logprobs", [&](uint32_t v) { sampling.set_prompt_logprobs(v); });
  if (const auto ignore = fields.Bool("ignore_eos")) sampling.set_ignore_eos(*ignore);
  ReadSeed(fields, sampling);
  ReadStop(fields, sampling, request);
  ReadStopTokens(fields, sampling);
  ReadBias(fields, sampling);
  ReadGrammar(fields, sampling, request);
  const auto best_of = fields.Integer("best_of", 0, kMaxUint32);
  if (best_of && *best_of != (sampling.has_n() ? sampling.n() : 1)) {
    fields.Refuse("best_of", "choosing among more answers than n is not offered here");
  }
  request.prompt_logprobs = sampling.has_prompt_logprobs();
  return sampling;
}

void ReadStreaming(JsonFields& fields, ApiRequest& request) {
  request.stream = fields.Bool("stream").value_or(false);
  request.return_token_ids = fields.Bool("return_token_ids").value_or(false);
  if (request.stream && request.prompt_logprobs) {
    return fields.Refuse("prompt_logprobs", "cannot be streamed");
  }
  const json::object* options = fields.Object("stream_options");
  if (options == nullptr) return;
  if (!request.stream) return fields.Refuse("stream_options", "is only for stream: true");
  JsonFields inner(*options, "stream_options.");
  RefuseUnknown(inner, *options,
                {"include_usage", "continuous_usage_stats", "resumable", "json_events",
                 "include_obfuscation"});
  request.include_usage = inner.Bool("include_usage").value_or(false);
  request.continuous_usage = inner.Bool("continuous_usage_stats").value_or(false);
  request.resumable = inner.Bool("resumable").value_or(false);
  ReadJsonEvents(inner, request);
  fields.Adopt(inner.status());
}

}  // namespace stagecoach::router::http
