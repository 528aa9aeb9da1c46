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
      "Maximum number of new tokens (default: up to the end of the context)");
  add("--min-tokens", &Params::set_min_tokens, "Do not end before this many new tokens");
  add("--temperature", &Params::set_temperature,
      "Sampling temperature; 0 is greedy (default: the model's, else 1)")
      ->check(ZeroOrMore());
  add("--top-p", &Params::set_top_p,
      "Sample from the smallest set of most likely tokens with at least this total probability, "
      "(0, 1]");
  add("--top-k", &Params::set_top_k, "Sample from the K most likely tokens; 0: all");
  add("--min-p", &Params::set_min_p,
      "Sample from tokens with at least this share of the most likely token's probability, [0, 1]");
  add("--seed", &Params::set_seed, "Random seed; the same seed gives the same tokens");
  add("--n", &Params::set_n, "Number of choices for the prompt")->check(MoreThanZero());
  app.add_option_function<std::vector<std::string>>(
         "--stop",
         [&sampling](const std::vector<std::string>& stops) {
           for (const std::string& stop : stops) sampling.add_stop(stop);
         },
         "End generation before this text. Can be given several times")
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
      "Ignore the model's end token and generate up to --max-tokens");
  add("--presence-penalty", &Params::set_presence_penalty,
      "Penalty for tokens that were already generated, [-2, 2]");
  add("--frequency-penalty", &Params::set_frequency_penalty,
      "Penalty for a token for each time that it was generated, [-2, 2]");
  add("--repetition-penalty", &Params::set_repetition_penalty,
      "Penalty factor for tokens in the prompt or the completion; 1: none");
  app.option_defaults()->group("Options");
}

void AddLogprobFlags(CLI::App& app, v1::SamplingParams& sampling) {
  app.option_defaults()->group("Sampling");
  AddSetter(app, sampling, "--logprobs", &v1::SamplingParams::set_logprobs,
            "Return the log-probability of each new token and of the N most likely ones");
  app.add_option_function<std::string>(
         "--prompt-logprobs",
         [&sampling](const std::string& text) {
           uint32_t n = 0;
           if (!text.empty() && !CLI::detail::lexical_cast(text, n)) {
             throw CLI::ConversionError(text, "--prompt-logprobs");
           }
           sampling.set_prompt_logprobs(n);
         },
         "The same for the prompt's tokens; without N only the prompt's tokens themselves")
      ->type_name("[N]")
      ->expected(0, 1);
  app.option_defaults()->group("Options");
}

}  // namespace stagecoach::cli
