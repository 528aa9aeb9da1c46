// Checks whether this machine can run the server, and says how to fix what it lacks.
#pragma once

#include <boost/json/object.hpp>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace stagecoach::doctor {

enum class Level : uint8_t {
  kOk,
  kWarning,  // can serve, but slower or with less capacity
  kProblem   // cannot serve, not even on the CPU
};

struct Line {
  Level level = Level::kOk;
  std::string name;    // "huge pages"
  std::string found;   // what was found
  std::string advice;  // how to fix it; empty: nothing to fix
};

// Examines the machine as this process sees it: CPU affinity, cgroups and resource limits are taken
// into account. `program_dir`: the folder of the project's programs. GPU libraries are loaded into
// this process. Tests set `root` to a folder that replaces "/".
std::vector<Line> Examine(const std::string& program_dir, const std::string& root = "");

bool CanServe(const std::vector<Line>& lines);  // true if no line is a problem

// Text of at most `width` columns, without a trailing line break.
std::string ToText(const std::vector<Line>& lines, size_t width);

// {ok, lines: [{name, level: "ok" | "warning" | "problem", found, advice}]}
boost::json::object ToJson(const std::vector<Line>& lines);

}  // namespace stagecoach::doctor
