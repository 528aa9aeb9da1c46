#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <boost/json.hpp>
#include <memory>

#include "cli/check/check_model.h"
#include "cli/command.h"
#include "cli/serve_options.h"
#include "common/flags/checks.h"
#include "common/flags/flag_table.h"
#include "common/flags/pipeline_flags.h"
#include "common/json_text.h"

namespace stagecoach::cli {
namespace {

struct CheckFlags {
  check::CheckOptions check;
  bool json = false;
};

int Check(const CheckFlags& options) {
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
  auto options = std::make_shared<CheckFlags>();
  CLI::App* check = app.add_subcommand(
      "check",
      "Checks whether the server can serve a model, and reports the memory that it takes. Does not "
      "load it. If it cannot be served, lists every problem with its fix, and exits with 1");
  check->add_option("model", options->check.model, kModelHelp)->type_name("MODEL")->required();
  check
      ->add_option("--stages", options->check.n_stages,
                   "Number of pipeline stages over which the layers are split")
      ->type_name("N")
      ->check(Between(1, 256))
      ->capture_default_str();
  FlagTable table(*check);
  DeclareDType(table, options->check.config);
  DeclareQuantize(table, options->check.config);
  DeclareKvDType(table, options->check.config);
  check
      ->add_option("--chat-template", options->check.chat_template,
                   "Jinja file to use instead of the checkpoint's chat template")
      ->type_name("FILE");
  check
      ->add_option("--merge-adapter", *options->check.config.mutable_adapter_dir(),
                   "Folder of a LoRA adapter to merge into the weights")
      ->type_name("DIR");
  check->add_flag("--json", options->json, "Print one JSON object");
  check->callback([options, &command] { command = [options] { return Check(*options); }; });
}

}  // namespace stagecoach::cli
