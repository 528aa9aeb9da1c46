#include "common/flags/observation_flags.h"

#include "common/flags/checks.h"
#include "common/flags/flag_table.h"

namespace stagecoach {

void DeclareObservationFlags(FlagTable& table, ObservationFlags& flags) {
  table
      .Add("--flight-recorder", flags.flight_recorder,
           "Folder to which router and workers write their last steps on SIGUSR1 and when "
           "they crash, for \"stagecoach timeline\"; \"off\" disables it")
      ->type_name("DIR")
      ->capture_default_str();
  table
      .Add("--otlp-endpoint", flags.otlp_endpoint,
           "OpenTelemetry receiver (OTLP over gRPC) for the spans of traced requests, from "
           "router and workers (default: no traces)")
      ->type_name("HOST:PORT")
      ->check(Address());
  table
      .Add("--log-format", flags.log_format,
           "text: lines for people; json: one JSON object per line")
      ->type_name("FORMAT")
      ->check(CLI::IsMember({"text", "json"}))
      ->capture_default_str();
}

}  // namespace stagecoach
