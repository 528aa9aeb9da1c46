#include "common/flags/serve_flags.h"

#include <fmt/format.h>

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

absl::Status CheckServeFlags(const ServeFlags& flags) {
  if (flags.grpc == "off" && flags.http == "off") {
    return absl::InvalidArgumentError(
        "--grpc off leaves no way in: give --http HOST:PORT, or leave gRPC on");
  }
  if (!flags.journal.place.empty() && flags.streams.keep.count() == 0) {
    return absl::InvalidArgumentError(
        "--journal keeps resumable streams, but --resume-time 0 allows none: leave one of them "
        "out");
  }
  if (!flags.kv_events.endpoint.empty() && !flags.scheduler.prefix_cache) {
    return absl::InvalidArgumentError(
        "--kv-events tells what the prefix cache holds, but --prefix-cache is off: leave one of "
        "them out");
  }
  if (!flags.kv_events.endpoint.empty() && !flags.access.api_keys.empty()) {
    return absl::InvalidArgumentError(
        "--kv-events leaves out what is cached for one tenant only, and with --api-keys that is "
        "everything: leave one of them out");
  }
  if (flags.http_limits.max_body_bytes > flags.request_memory_bytes) {
    return absl::InvalidArgumentError(
        fmt::format("--http-max-body {} is more than --request-memory {}, the memory for all "
                    "requests together: raise the latter",
                    flags.http_limits.max_body_bytes, flags.request_memory_bytes));
  }
  return absl::OkStatus();
}

std::vector<std::string> ToArgs(const ServeFlags& flags) {
  return ArgsOf(flags, DeclareServeFlags);
}

std::vector<std::string> ToEnvironment(const ServeFlags& flags) {
  return EnvironmentOf(flags, DeclareServeFlags);
}

}  // namespace stagecoach
