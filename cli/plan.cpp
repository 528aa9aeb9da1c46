#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <boost/json.hpp>
#include <memory>
#include <string>
#include <vector>

#include "cli/check/check_model.h"
#include "cli/command.h"
#include "cli/plan/plan_model.h"
#include "cli/serve_options.h"
#include "common/config/load_config.h"
#include "common/flags/checks.h"
#include "common/flags/flag_table.h"
#include "common/flags/pipeline_flags.h"
#include "common/json_text.h"
#include "common/model/device_support.h"
#include "common/model/kv_support.h"
#include "common/model/model_spec.h"
#include "common/status.h"

namespace stagecoach::cli {
namespace {

struct PlanFlags {
  check::CheckOptions check;
  plan::PlanOptions plan;
  std::string gpu = "H200";
  bool json = false;
};

std::string GpuNames() {
  std::vector<std::string_view> names;
  for (const plan::Gpu& gpu : plan::KnownGpus()) names.push_back(gpu.name);
  return fmt::format("{}", fmt::join(names, ", "));
}

absl::Status CheckOffered(const ModelSpec& spec, const check::CheckOptions& options) {
  SC_RETURN_IF_ERROR(CheckRunsOnGpus(spec));
  return CheckKvDType(spec, KvDTypeOf(options.config, spec.stored_dtype));
}

int Plan(PlanFlags options) {
  const absl::StatusOr<std::string> dir = ResolveModelDir(options.check.model);
  const absl::StatusOr<ModelSpec> spec = dir.ok() ? ReadModelSpec(*dir) : dir.status();
  if (const absl::Status offered =
          spec.ok() ? CheckOffered(*spec, options.check) : absl::OkStatus();
      !offered.ok()) {
    fmt::print(stderr, "{}\n", std::string(offered.message()));
    return kExitError;
  }
  options.check.on_gpus = true;
  options.check.read_large_tokenizer = false;
  const check::ModelReport report = check::CheckModel(options.check);
  if (!report.facts) {
    fmt::print(stderr, "{}\n", ProblemsText(report, kReportColumns));
    return kExitError;
  }
  if (!spec.ok()) {
    fmt::print(stderr, "{}\n", std::string(spec.status().message()));
    return kExitError;
  }
  const int32_t context_tokens =
      options.plan.context_tokens > 0 ? options.plan.context_tokens : report.facts->context_tokens;
  if (options.plan.prompt_tokens >= context_tokens) {
    fmt::print(
        stderr, "--prompt-tokens {} leaves no room for an answer: it must be less than {}, {}\n",
        options.plan.prompt_tokens, context_tokens,
        options.plan.context_tokens > 0 ? "the value of --context" : "the model's context length");
    return kExitError;
  }
  options.plan.gpu = *plan::FindGpu(options.gpu);
  options.plan.hidden_dtype = options.check.config.hidden_dtype();
  const plan::ServingPlan plan = PlanServing(*spec, *report.facts, options.plan);
  if (options.json) {
    fmt::print("{}\n", JsonText(ToJson(plan)));
  } else {
    fmt::print("{}\n", ToText(plan, *report.facts));
  }
  return plan.fits() ? kExitOk : kExitError;
}

}  // namespace

void AddPlan(CLI::App& app, Command& command) {
  auto options = std::make_shared<PlanFlags>();
  CLI::App* plan = app.add_subcommand(
      "plan",
      "Estimates a model's memory and speed on GPUs. This machine needs no GPU. Prints layers of "
      "each stage, weights, KV cache and tokens per second. A folder with only config.json is "
      "enough. Exits with 1 if the model does not fit");
  plan->add_option("model", options->check.model, kModelHelp)->type_name("MODEL")->required();
  plan->add_option("--stages", options->check.n_stages,
                   "Number of pipeline stages, each with one GPU")
      ->type_name("N")
      ->check(Between(1, 256))
      ->capture_default_str();
  plan->add_option("--gpu", options->gpu, "One of " + GpuNames())
      ->type_name("NAME")
      ->check([](const std::string& name) {
        return plan::FindGpu(name) ? "" : fmt::format("unknown GPU; known are {}", GpuNames());
      })
      ->capture_default_str();
  plan->add_option(
          "--context", options->plan.context_tokens,
          "Length of a sequence in tokens, prompt and answer together [the model's context length]")
      ->type_name("N")
      ->check(MoreThanZero());
  plan->add_option("--prompt-tokens", options->plan.prompt_tokens,
                   "Number of prompt tokens among them. The rate of many concurrent requests then "
                   "includes the time to compute their prompts, and counts only the tokens of "
                   "their answers [0: prompts take no time]")
      ->type_name("N")
      ->check(MoreThanZero());
  plan->add_option("--memory-fraction", options->plan.memory_fraction,
                   "Share of the GPU's memory that a worker may use")
      ->check(Between(0.1, 1.0))
      ->capture_default_str();
  FlagTable table(*plan);
  table.AddSize("--kv-memory", options->plan.kv_memory_bytes,
                "Memory for the KV cache of each stage, as for `serve` [all memory that is left]");
  table.AddSwitch("--prefix-cache", options->plan.saves_states,
                  "Plan with the prefix cache on or off, as for `serve`. With the cache, recurrent "
                  "layers keep more than one state for each sequence [on]");
  plan->add_option("--max-batched-tokens", options->plan.max_batched_tokens,
                   "Maximum number of tokens in one step")
      ->type_name("N")
      ->check(MoreThanZero())
      ->capture_default_str();
  plan->add_option("--max-sequences", options->plan.max_sequences,
                   "Maximum number of sequences that run at the same time [256; on several GPUs, "
                   "the larger of 1024 and 256 per stage]")
      ->type_name("N")
      ->check(MoreThanZero());
  DeclareDType(table, options->check.config);
  DeclareKvDType(table, options->check.config);
  DeclareHiddenDType(table, options->check.config);
  plan->add_flag("--json", options->json, "Print one JSON object");
  plan->callback([options, &command] { command = [options] { return Plan(*options); }; });
}

}  // namespace stagecoach::cli
