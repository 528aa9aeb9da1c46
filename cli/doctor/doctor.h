// Whether this machine can serve, and what to do about what it lacks.
#pragma once

#include <boost/json/object.hpp>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace stagecoach::doctor {

enum class Level : uint8_t {
  kOk,
  kWarning,  // serves, but slower or less than it could
  kProblem   // does not serve on the CPU
};

struct Line {
  Level level = Level::kOk;
  std::string name;    // "huge pages"
  std::string found;   // what is there
  std::string advice;  // what to do about it; empty: nothing
};

// Looks at the machine as this process sees it: affinity, cgroups and limits count. `program_dir`:
// the folder of the project's programs. GPU libraries are loaded into this process. `root` stands
// in for "/" in tests.
std::vector<Line> Examine(const std::string& program_dir, const std::string& root = "");

bool CanServe(const std::vector<Line>& lines);  // no problem among them

// For people, at most `width` columns; no line break at the end.
std::string ToText(const std::vector<Line>& lines, size_t width);

// {ok, lines: [{name, level: "ok" | "warning" | "problem", found, advice}]}
boost::json::object ToJson(const std::vector<Line>& lines);

}  // namespace stagecoach::doctor
