#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <boost/json.hpp>
#include <memory>

#include "cli/check/check_model.h"
#include "cli/command.h"
#include "cli/serve_options.h"
#include "common/flags/checks.h"
#include "common/json_text.h"

namespace stagecoach::cli {
namespace {

struct Options {
  check::CheckOptions check;
  std::string dtype = "auto";
  bool json = false;
};

int Check(Options options) {
  options.check.dtype = ParseDTypeFlag(options.dtype);
  const check::ModelReport report = check::CheckModel(options.check);
  if (options.json) {
    fmt::print("{}\n", JsonText(ToJson(report)));
  } else {
    fmt::print("{}\n", ToText(report, kReportColumns));
  }
  return report.ok() ? kExitOk : kExitError;
}

}  // namespace

void AddCheck(CLI::App& app, Command& command) {
  auto options = std::make_shared<Options>();
  CLI::App* check = app.add_subcommand(
      "check",
      "Says whether a model can be served and what it takes, without loading it; exits 1 and names "
      "every problem with its fix if not");
  check->add_option("model", options->check.model, kModelHelp)->type_name("MODEL")->required();
  check->add_option("--stages", options->check.n_stages, "Pipeline stages to split the layers over")
      ->type_name("N")
      ->check(Between(1, 256))
      ->capture_default_str();
  check
      ->add_option("--dtype", options->dtype,
                   "Type of weights and KV cache in memory; auto: as the checkpoint says")
      ->type_name("TYPE")
      ->check(CLI::IsMember({"auto", "float32", "bfloat16"}))
      ->capture_default_str();
  check
      ->add_option("--chat-template", options->check.chat_template,
                   "Jinja file used in place of the checkpoint's chat template")
      ->type_name("FILE");
  check
      ->add_option("--merge-adapter", options->check.adapter_dir,
                   "Folder of a LoRA adapter that is to be merged into the weights")
      ->type_name("DIR");
  check->add_flag("--json", options->json, "Print one JSON object");
  check->callback([options, &command] { command = [options] { return Check(*options); }; });
}

}  // namespace stagecoach::cli
