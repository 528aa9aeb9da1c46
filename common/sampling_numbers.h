// The numbers with which a client shapes the distribution that tokens are drawn from. Each has one
// entry in kSamplingNumbers. The entry determines the command line's flag, the HTTP field, the
// default from generation_config.json and the range that the router checks.
//
// A new entry needs a field with its name in v1::SamplingParams, v1::SlotSampling,
// kernels::SampleParams and openapi.json, and kernels that read it. Tests find a missing field.
#pragma once

#include <cstdint>
#include <limits>
#include <string>

namespace stagecoach {

struct SamplingNumber {
  // The field's name in v1::SamplingParams, v1::SlotSampling, kernels::SampleParams and JSON. The
  // flag has '-' in place of '_'.
  const char* name;
  bool is_integer = false;  // int32; otherwise float
  double absent = 0;        // the value if neither the client nor the checkpoint sets one
  double min = 0;
  bool above_min = false;  // `min` itself is out of range
  double max = kNoMax;
  bool in_checkpoint = false;  // generation_config.json may have it
  const char* help = "";       // for the flag; the bounds are appended
  const char* note = "";       // appended to RangeText

  static constexpr double kNoMax = std::numeric_limits<float>::max();

  // False for NaN and infinity.
  constexpr bool Holds(double value) const {
    return (above_min ? value > min : value >= min) && value <= max;
  }
};

inline constexpr SamplingNumber kSamplingNumbers[] = {
    {.name = "temperature",
     .absent = 1,
     .in_checkpoint = true,
     .help = "Sampling temperature. 0: greedy (default: the model's, else 1)"},
    {.name = "top_k",
     .is_integer = true,
     .min = -1,
     .max = std::numeric_limits<int32_t>::max(),
     .in_checkpoint = true,
     .help = "Sample from the K most likely tokens. 0: from all",
     .note = " (0 or -1: off)"},
    {.name = "top_p",
     .absent = 1,
     .above_min = true,
     .max = 1,
     .in_checkpoint = true,
     .help = "Sample from the smallest set of most likely tokens whose probabilities add up to at "
             "least X"},
    {.name = "min_p",
     .max = 1,
     .in_checkpoint = true,
     .help =
         "Sample from tokens whose probability is at least X times that of the most likely token"},
    {.name = "top_n_sigma",
     .min = -1,
     .help =
         "Sample from tokens whose logit is at most X standard deviations below the largest logit",
     .note = " (0 or less: off)"},
    {.name = "presence_penalty",
     .min = -2,
     .max = 2,
     .help = "Penalty for each token that was already generated"},
    {.name = "frequency_penalty",
     .min = -2,
     .max = 2,
     .help = "Penalty for each time that a token was already generated"},
    {.name = "repetition_penalty",
     .absent = 1,
     .above_min = true,
     .in_checkpoint = true,
     .help = "Penalty factor for tokens that are in the prompt or in the completion. 1: none"},
};

// "[0, 1]", "(0, 1]"; empty if there is no upper limit.
std::string BoundsText(const SamplingNumber& number);

// The text after "must be": "in (0, 1]", "a number >= 0", ">= -1 (0 or -1: off)".
std::string RangeText(const SamplingNumber& number);

}  // namespace stagecoach
