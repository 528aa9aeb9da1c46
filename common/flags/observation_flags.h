// Flags of what router and workers report about themselves.
#pragma once

#include <string>

namespace stagecoach {

class FlagTable;

struct ObservationFlags {
  std::string flight_recorder = "/tmp";  // a folder; "off"
  std::string otlp_endpoint;             // HOST:PORT; empty: no traces
  std::string log_format = "text";       // text | json
  bool operator==(const ObservationFlags&) const = default;
};

void DeclareObservationFlags(FlagTable& table, ObservationFlags& flags);

}  // namespace stagecoach
