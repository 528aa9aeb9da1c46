// The rows of a drill as a table and as JSON.
#pragma once

#include <boost/json/object.hpp>
#include <span>
#include <string>

#include "cli/drill/drill.h"

namespace stagecoach::drill {

// The two lines above the rows. At most 100 columns; each line with a trailing line break.
std::string TableHead();
std::string TableLine(const Row& row);
// Whether every stream ended as without a fault, and if not, an error; a second line if streams had
// already ended when a fault came.
std::string TableEnd(std::span<const Row> rows);

bool AllIdentical(std::span<const Row> rows);

// {"all_identical", "faults": [{"fault", "stage", "streams", "running_share", "identical", "error",
//  "hung", "different", "first_error", and "noticed_s", "recovered_s" and "silent_s" with
//  {"n", "median", "max"} each}]}
boost::json::object ToJson(std::span<const Row> rows);

}  // namespace stagecoach::drill
