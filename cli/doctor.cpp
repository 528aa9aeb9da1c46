#include "cli/doctor/doctor.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <boost/json.hpp>
#include <memory>

#include "cli/command.h"
#include "cli/serve_options.h"
#include "common/json_text.h"

namespace stagecoach::cli {
namespace {

int Doctor(bool json) {
  const std::vector<doctor::Line> lines = doctor::Examine(ProgramDir());
  if (json) {
    fmt::print("{}\n", JsonText(ToJson(lines)));
  } else {
    fmt::print("{}\n", ToText(lines, kReportColumns));
  }
  return CanServe(lines) ? kExitOk : kExitError;
}

}  // namespace

void AddDoctor(CLI::App& app, Command& command) {
  auto json = std::make_shared<bool>(false);
  CLI::App* doctor =
      app.add_subcommand("doctor",
                         "Checks this machine's CPU, memory, limits and GPUs. Says how to fix each "
                         "problem. Exits with 1 if the machine cannot serve");
  doctor->add_flag("--json", *json, "Print one JSON object");
  doctor->callback([json, &command] { command = [json] { return Doctor(*json); }; });
}

}  // namespace stagecoach::cli
