#include "cli/sampling_flags.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <limits>

#include "common/flags/checks.h"
#include "common/number_fields.h"
#include "common/sampling_numbers.h"

namespace stagecoach::cli {
namespace {

template <typename T>
CLI::Option* AddSetter(CLI::App& app, v1::SamplingParams& sampling, const std::string& name,
                       void (v1::SamplingParams::*set)(T), const std::string& help) {
  return app
      .add_option_function<T>(
          name, [&sampling, set](const T& value) { (sampling.*set)(value); }, help)
      ->type_name(std::is_integral_v<T> ? "N" : "X");
}

// "must be in [0, 1], not 3"
CLI::Validator InRange(const SamplingNumber& number) {
  return CLI::Validator(
      [&number](const std::string& text) {
        double value = 0;
        if (!CLI::detail::lexical_cast(text, value)) return fmt::format("'{}' is no number", text);
        return number.Holds(value) ? ""
                                   : fmt::format("must be {}, not {}", RangeText(number), text);
      },
      "");
}

void AddNumber(CLI::App& app, v1::SamplingParams& sampling, const SamplingNumber& number) {
  std::string flag = fmt::format("--{}", number.name);
  std::replace(flag.begin(), flag.end(), '_', '-');
  const std::string bounds = BoundsText(number);
  const std::string help =
      bounds.empty() ? number.help : fmt::format("{}, {}", number.help, bounds);
  const auto set = [&sampling, &number](double value) { SetNumber(sampling, number.name, value); };
  CLI::Option* const option = number.is_integer ? app.add_option_function<int32_t>(flag, set, help)
                                                : app.add_option_function<float>(flag, set, help);
  option->type_name(number.is_integer ? "N" : "X")->check(InRange(number));
}

}  // namespace

void AddSamplingFlags(CLI::App& app, v1::SamplingParams& sampling) {
  using Params = v1::SamplingParams;
  app.option_defaults()->group("Sampling");
  const auto add = [&](const auto& name, auto set, const std::string& help) {
    return AddSetter(app, sampling, name, set, help);
  };
  add("--max-tokens", &Params::set_max_tokens,
      "Maximum number of new tokens (default: up to the end of the context)");
  add("--min-tokens", &Params::set_min_tokens, "Minimum number of new tokens");
  for (const SamplingNumber& number : kSamplingNumbers) AddNumber(app, sampling, number);
  add("--seed", &Params::set_seed, "Random seed. The same seed gives the same tokens");
  add("--n", &Params::set_n, "Number of choices for the prompt")->check(MoreThanZero());
  app.add_option_function<std::vector<std::string>>(
         "--stop",
         [&sampling](const std::vector<std::string>& stops) {
           for (const std::string& stop : stops) sampling.add_stop(stop);
         },
         "Text that ends generation. The answer does not contain it. Can be given several times")
      ->type_name("TEXT")
      ->allow_extra_args(false);
  app.add_option_function<std::vector<int32_t>>(
         "--stop-token-ids",
         [&sampling](const std::vector<int32_t>& ids) {
           for (const int32_t id : ids) sampling.add_stop_token_ids(id);
         },
         "Token ids that end generation")
      ->type_name("N,N...")
      ->delimiter(',')
      ->allow_extra_args(false);
  app.add_flag_function(
      "--ignore-eos", [&sampling](int64_t) { sampling.set_ignore_eos(true); },
      "Ignore the model's end token, and generate up to --max-tokens");
  app.option_defaults()->group("Options");
}

void AddLogprobFlags(CLI::App& app, v1::SamplingParams& sampling) {
  app.option_defaults()->group("Sampling");
  AddSetter(app, sampling, "--logprobs", &v1::SamplingParams::set_logprobs,
            "Return the log-probabilities of each new token and of the N most likely tokens");
  app.add_option_function<std::string>(
         "--prompt-logprobs",
         [&sampling](const std::string& text) {
           uint32_t n = 0;
           if (!text.empty() && !CLI::detail::lexical_cast(text, n)) {
             throw CLI::ConversionError(text, "--prompt-logprobs");
           }
           sampling.set_prompt_logprobs(n);
         },
         "Return the same for the prompt's tokens. Without N, return only the prompt's tokens "
         "themselves")
      ->type_name("[N]")
      ->expected(0, 1);
  app.option_defaults()->group("Options");
}

}  // namespace stagecoach::cli
