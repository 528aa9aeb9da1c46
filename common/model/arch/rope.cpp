// Rotary parameters in the config formats of transformers before and after version 5.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "common/model/arch/shared.h"

namespace stagecoach::arch {
namespace {

double FactorOr(ConfigReader& section, double or_else) {
  return section.Number("factor", 1.0, 1e6, or_else);
}

void ReadLlama3(ConfigReader& section, RopeSpec& rope) {
  rope.scaling = RopeScaling::kLlama3;
  rope.factor = section.Number("factor", 1.0, 1e6);
  rope.low_freq_factor = section.Number("low_freq_factor", 1e-6, 1e6);
  rope.high_freq_factor = section.Number("high_freq_factor", 1e-6, 1e6);
  if (section.ok() && rope.high_freq_factor < rope.low_freq_factor) {
    section.Problem("high_freq_factor", "is below low_freq_factor");
  }
}

// `stretch`: the model's max positions divided by the original max positions.
void ReadYarn(ConfigReader& section, double stretch, RopeSpec& rope) {
  rope.scaling = RopeScaling::kYarn;
  rope.factor = FactorOr(section, stretch);
  rope.beta_fast = section.Number("beta_fast", 1e-6, 1e6, rope.beta_fast);
  rope.beta_slow = section.Number("beta_slow", 1e-6, 1e6, rope.beta_slow);
  rope.truncate = section.Bool("truncate", true);
  const auto scale = [&](double m) { return 0.1 * m * std::log(rope.factor) + 1.0; };
  const double over = section.Number("mscale", 0, 1e6, 0.0);
  const double under = section.Number("mscale_all_dim", 0, 1e6, 0.0);
  rope.attention_factor = section.Number(
      "attention_factor", 0, 1e6, over > 0 && under > 0 ? scale(over) / scale(under) : scale(1.0));
}

void ReadLongRope(ConfigReader& section, double stretch, int32_t n_frequencies, RopeSpec& rope) {
  rope.scaling = RopeScaling::kLongRope;
  const double factor = FactorOr(section, stretch);
  const double context = std::max(rope.original_max_positions, 2);
  rope.attention_factor = section.Number("attention_factor", 0, 1e6,
                                         std::sqrt(1 + std::log(factor) / std::log(context)));
  const auto read = [&](const char* key) {
    const std::vector<double> factors = section.Numbers(key);
    if (n_frequencies > 0 && static_cast<int64_t>(factors.size()) != n_frequencies) {
      section.Problem(key, fmt::format("has {} entries for the {} frequencies of a head",
                                       factors.size(), n_frequencies));
    }
    for (const double value : factors) {
      if (!(value > 0)) section.Problem(key, fmt::format("{} is not above 0", value));
    }
    return factors;
  };
  rope.short_factors = read("short_factor");
  rope.long_factors = read("long_factor");
}

}  // namespace

ConfigReader RopeSection(ConfigReader& config) {
  return config.Section(config.Has("rope_scaling") ? "rope_scaling" : "rope_parameters");
}

RopeSpec ReadRopeParameters(ConfigReader& section, const RopeDefaults& defaults) {
  RopeSpec rope;
  rope.theta = section.Number("rope_theta", 1.0, 1e12, defaults.theta);
  const double part = section.Number("partial_rotary_factor", 0, 1, defaults.partial_rotary_factor);
  const char* key = section.Has("rope_type") ? "rope_type" : "type";
  const std::string type = section.String(key, "default");
  if (type == "proportional") {
    // All values are paired as in a full rotation, and the pairs after this part stand still.
    rope.rotary_dim = defaults.head_dim;
    rope.scaling = RopeScaling::kProportional;
    rope.factor = FactorOr(section, 1.0);
    rope.n_turning = static_cast<int32_t>(defaults.head_dim * part / 2);
    return rope;
  }
  rope.rotary_dim = static_cast<int32_t>(defaults.head_dim * part);
  if (section.ok() && (rope.rotary_dim < 2 || rope.rotary_dim % 2 != 0)) {
    section.Problem(
        "partial_rotary_factor",
        fmt::format("{} of a head of {} is not an even number of values", part, defaults.head_dim));
  }
  if (type == "default") return rope;
  if (type == "linear") {
    rope.scaling = RopeScaling::kLinear;
    rope.factor = section.Number("factor", 1.0, 1e6);
    return rope;
  }
  rope.original_max_positions = section.Int("original_max_position_embeddings", 1, kMaxPositions,
                                            defaults.original_max_positions);
  const double stretch =
      std::max(1.0, static_cast<double>(defaults.max_positions) / rope.original_max_positions);
  // Phi-3's first files call this type "su", and some call it "yarn".
  if (type == "longrope" || type == "su" || (type == "yarn" && section.Has("long_factor"))) {
    ReadLongRope(section, stretch, rope.rotary_dim / 2, rope);
  } else if (type == "llama3") {
    ReadLlama3(section, rope);
  } else if (type == "yarn") {
    ReadYarn(section, stretch, rope);
  } else {
    section.Unsupported(key, fmt::format("rotary scaling \"{}\" is not supported; supported are "
                                         "default, linear, llama3, yarn, longrope and "
                                         "proportional",
                                         type));
  }
  return rope;
}

void NeedRopeParameters(ConfigReader& config) {
  if (!config.Has("rope_scaling") && !config.Has("rope_parameters")) {
    config.Problem("rope_parameters", "missing, and so is rope_scaling");
  }
}

void ReadQueryScaling(ConfigReader& config, ModelSpec& spec) {
  NeedRopeParameters(config);
  ConfigReader section = RopeSection(config);
  spec.query_scaling.beta = static_cast<float>(section.Number("llama_4_scaling_beta", 0, 1e3, 0.0));
  spec.query_scaling.step =
      section.Int("original_max_position_embeddings", 1, kMaxPositions, spec.max_positions);
  for (LayerSpec& layer : spec.layers) layer.scales_queries = true;
}

RopeSpec ReadRope(ConfigReader& config, double theta, const ModelSpec& spec,
                  double partial_rotary_factor) {
  const RopeDefaults defaults{
      .theta = config.Number("rope_theta", 1.0, 1e12, theta),
      .max_positions = spec.max_positions,
      .original_max_positions =
          config.Int("original_max_position_embeddings", 1, kMaxPositions, spec.max_positions),
      .head_dim = spec.head_dim,
      .partial_rotary_factor = config.Number("partial_rotary_factor", 0, 1, partial_rotary_factor)};
  ConfigReader section = RopeSection(config);
  return ReadRopeParameters(section, defaults);
}

}  // namespace stagecoach::arch
