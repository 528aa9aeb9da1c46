#include "common/flags/serve_flags.h"

#include <CLI/CLI.hpp>

#include "common/flags/flag_table.h"

namespace stagecoach {
namespace {

void DeclareServeFlags(FlagTable& table, ServeFlags& flags) {
  DeclareFrontEndFlags(table, flags);
  DeclarePipelineFlags(table, flags);
}

template <typename Flags>
void AddInGroup(CLI::App& app, Flags& flags, void (*declare)(FlagTable&, Flags&)) {
  const std::string outer_group = app.option_defaults()->get_group();
  app.option_defaults()->group("Serving");
  FlagTable table(app);
  declare(table, flags);
  app.option_defaults()->group(outer_group);
}

}  // namespace

void AddServeFlags(CLI::App& app, ServeFlags& flags) { AddInGroup(app, flags, DeclareServeFlags); }

void AddPipelineFlags(CLI::App& app, PipelineFlags& flags) {
  AddInGroup(app, flags, DeclarePipelineFlags);
}

std::vector<std::string> ToArgs(const ServeFlags& flags) {
  return ArgsOf(flags, DeclareServeFlags);
}

}  // namespace stagecoach
