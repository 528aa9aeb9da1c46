// The numbers with which a client shapes the distribution that tokens are drawn from. One line
// each: from it follow the command line's flag, the HTTP field, the default of
// generation_config.json and the range that the router checks.
//
// A new line needs a field of its name in v1::SamplingParams and v1::SlotSampling, in
// kernels::SampleParams and openapi.json, and kernels that read it. Tests find a missing field.
#pragma once

#include <cstdint>
#include <limits>
#include <string>

namespace stagecoach {

struct SamplingNumber {
  // The field's in v1::SamplingParams, v1::SlotSampling, kernels::SampleParams and JSON; the flag
  // has '-' for '_'.
  const char* name;
  bool is_integer = false;  // an int32; else a float
  double absent = 0;        // the value when neither the client nor the checkpoint gives one
  double min = 0;
  bool above_min = false;  // `min` itself is out of range
  double max = kNoMax;
  bool in_checkpoint = false;  // generation_config.json may have it
  const char* help = "";       // of the flag; the range follows it
  const char* note = "";       // on the range

  static constexpr double kNoMax = std::numeric_limits<float>::max();

  // NaN and infinity are in no range.
  constexpr bool Holds(double value) const {
    return (above_min ? value > min : value >= min) && value <= max;
  }
};

inline constexpr SamplingNumber kSamplingNumbers[] = {
    {.name = "temperature",
     .absent = 1,
     .in_checkpoint = true,
     .help = "0 is greedy (default: the model's, else 1)"},
    {.name = "top_k",
     .is_integer = true,
     .min = -1,
     .max = std::numeric_limits<int32_t>::max(),
     .in_checkpoint = true,
     .help = "The K most likely tokens; 0: all",
     .note = " (0 or -1: off)"},
    {.name = "top_p",
     .absent = 1,
     .above_min = true,
     .max = 1,
     .in_checkpoint = true,
     .help = "Smallest set of tokens with this much probability"},
    {.name = "min_p",
     .max = 1,
     .in_checkpoint = true,
     .help = "Tokens at least this probable, relative to the likeliest"},
    {.name = "top_n_sigma",
     .min = -1,
     .help = "Tokens whose logit is within X standard deviations of the largest; 0: off",
     .note = " (0 or less: off)"},
    {.name = "presence_penalty", .min = -2, .max = 2, .help = "For tokens generated before"},
    {.name = "frequency_penalty",
     .min = -2,
     .max = 2,
     .help = "For each time a token was generated before"},
    {.name = "repetition_penalty",
     .absent = 1,
     .above_min = true,
     .in_checkpoint = true,
     .help = "For tokens of prompt and completion; 1: none"},
};

// "[0, 1]", "(0, 1]"; empty without a greatest value.
std::string BoundsText(const SamplingNumber& number);

// What a value must be: "in (0, 1]", "a number >= 0", ">= -1 (0 or -1: off)".
std::string RangeText(const SamplingNumber& number);

}  // namespace stagecoach
