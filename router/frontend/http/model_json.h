// The served model as JSON.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/recoveries.h"
#include "router/text/served_model.h"
#include "stagecoach/v1/inference.pb.h"

namespace stagecoach::router::http {

// An entry of OpenAI's list of models.
std::string ModelJson(const ServedModel& model, int64_t created_unix_s);
// The list with the one served model.
std::string ModelListJson(const ServedModel& model, int64_t created_unix_s);

// What the server does as a whole.
struct ServerState {
  const char* word = "ready";  // or "recovering", "stalled", "draining"
  std::string reason;          // why it serves nothing now; empty: it serves
  std::vector<Recovery> recoveries;
};

// Stages, KV blocks and the scheduler's numbers, for /status. `compute_ms`: per stage, since the
// start; absent if unknown.
std::string StatusJson(const v1::Model& model, const std::vector<std::optional<double>>& compute_ms,
                       const ServerState& state);

}  // namespace stagecoach::router::http
