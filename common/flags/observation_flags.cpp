#include "common/flags/observation_flags.h"

#include "common/flags/checks.h"
#include "common/flags/flag_table.h"

namespace stagecoach {

void DeclareObservationFlags(FlagTable& table, ObservationFlags& flags) {
  table
      .Add("--flight-recorder", flags.flight_recorder,
           "Folder for flight recorder files. Router and workers write their last steps there on "
           "SIGUSR1 and when they crash. `stagecoach timeline` draws them. \"off\" turns this off")
      ->type_name("DIR")
      ->capture_default_str();
  table
      .Add("--otlp-endpoint", flags.otlp_endpoint,
           "OpenTelemetry receiver (OTLP over gRPC). Router and workers send it the spans of "
           "traced requests (default: no traces)")
      ->type_name("HOST:PORT")
      ->check(Address());
  table
      .Add("--log-format", flags.log_format,
           "Format of the log. text: lines for people; json: one JSON object per line")
      ->type_name("FORMAT")
      ->check(CLI::IsMember({"text", "json"}))
      ->capture_default_str();
}

}  // namespace stagecoach
