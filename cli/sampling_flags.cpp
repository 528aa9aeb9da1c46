#include "cli/sampling_flags.h"

#include <CLI/CLI.hpp>
#include <limits>

#include "common/flags/checks.h"

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

}  // namespace

void AddSamplingFlags(CLI::App& app, v1::SamplingParams& sampling) {
  using Params = v1::SamplingParams;
  app.option_defaults()->group("Sampling");
  const auto add = [&](const auto& name, auto set, const std::string& help) {
    return AddSetter(app, sampling, name, set, help);
  };
  add("--max-tokens", &Params::set_max_tokens,
      "New tokens, at most (default: to the context's end)");
  add("--min-tokens", &Params::set_min_tokens, "No end before this many new tokens");
  add("--temperature", &Params::set_temperature, "0 is greedy (default: the model's, else 1)")
      ->check(ZeroOrMore());
  add("--top-p", &Params::set_top_p, "Smallest set of tokens with this much probability, (0, 1]");
  add("--top-k", &Params::set_top_k, "The K most likely tokens; 0: all");
  add("--min-p", &Params::set_min_p, "Tokens at least this probable, relative to the likeliest");
  add("--seed", &Params::set_seed, "The same seed gives the same tokens");
  add("--n", &Params::set_n, "Choices for the one prompt")->check(MoreThanZero());
  app.add_option_function<std::vector<std::string>>(
         "--stop",
         [&sampling](const std::vector<std::string>& stops) {
           for (const std::string& stop : stops) sampling.add_stop(stop);
         },
         "Ends generation before this text; may be given several times")
      ->type_name("TEXT")
      ->allow_extra_args(false);
  app.add_option_function<std::vector<int32_t>>(
         "--stop-token-ids",
         [&sampling](const std::vector<int32_t>& ids) {
           for (const int32_t id : ids) sampling.add_stop_token_ids(id);
         },
         "Tokens that end generation")
      ->type_name("N,N...")
      ->delimiter(',')
      ->allow_extra_args(false);
  app.add_flag_function(
      "--ignore-eos", [&sampling](int64_t) { sampling.set_ignore_eos(true); },
      "Generate to --max-tokens, whatever the model says");
  add("--presence-penalty", &Params::set_presence_penalty, "For tokens generated before, [-2, 2]");
  add("--frequency-penalty", &Params::set_frequency_penalty,
      "For each time a token was generated before, [-2, 2]");
  add("--repetition-penalty", &Params::set_repetition_penalty,
      "For tokens of prompt and completion; 1: none");
  app.option_defaults()->group("Options");
}

void AddLogprobFlags(CLI::App& app, v1::SamplingParams& sampling) {
  app.option_defaults()->group("Sampling");
  AddSetter(app, sampling, "--logprobs", &v1::SamplingParams::set_logprobs,
            "Log-probability of each new token and of the N most likely ones");
  app.add_option_function<std::string>(
         "--prompt-logprobs",
         [&sampling](const std::string& text) {
           uint32_t n = 0;
           if (!text.empty() && !CLI::detail::lexical_cast(text, n)) {
             throw CLI::ConversionError(text, "--prompt-logprobs");
           }
           sampling.set_prompt_logprobs(n);
         },
         "The same for the prompt's tokens; without N only the tokens themselves")
      ->type_name("[N]")
      ->expected(0, 1);
  app.option_defaults()->group("Options");
}

}  // namespace stagecoach::cli
