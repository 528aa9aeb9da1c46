#include "cli/doctor/doctor.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/json.hpp>
#include <string_view>

#include "cli/check/columns.h"
#include "cli/doctor/gpu_probes.h"
#include "cli/doctor/host_probes.h"

namespace stagecoach::doctor {
namespace {

std::string_view LevelName(Level level) {
  switch (level) {
    case Level::kOk:
      return "ok";
    case Level::kWarning:
      return "warning";
    case Level::kProblem:
      return "problem";
  }
  return "?";
}

// "2 problems and 1 warning: this machine cannot serve"
std::string Verdict(const std::vector<Line>& lines) {
  const auto count = [&](Level level) {
    return std::count_if(lines.begin(), lines.end(),
                         [level](const Line& line) { return line.level == level; });
  };
  const auto plural = [](auto n, const char* word) {
    return fmt::format("{} {}{}", n, word, n == 1 ? "" : "s");
  };
  const auto n_problems = count(Level::kProblem), n_warnings = count(Level::kWarning);
  if (n_problems + n_warnings == 0) return "nothing to do: this machine can serve";
  std::string text;
  if (n_problems > 0) text = plural(n_problems, "problem");
  if (n_warnings > 0) {
    text += fmt::format("{}{}", text.empty() ? "" : " and ", plural(n_warnings, "warning"));
  }
  return text + (n_problems > 0 ? ": this machine cannot serve" : ": this machine can serve");
}

}  // namespace

std::vector<Line> Examine(const std::string& program_dir, const std::string& root) {
  std::vector<Line> lines{ProbeCpu(root),
                          ProbeCores(root),
                          ProbeMemory(root),
                          ProbeTransparentHugePages(root),
                          ProbeReservedHugePages(root),
                          ProbeSharedMemory(root),
                          ProbeOpenFiles(),
                          ProbeNumaNodes(root),
                          ProbePrograms(program_dir),
                          ProbeLoopback()};
  for (Line& line : ProbeGpus(root)) lines.push_back(std::move(line));
  return lines;
}

bool CanServe(const std::vector<Line>& lines) {
  return std::none_of(lines.begin(), lines.end(),
                      [](const Line& line) { return line.level == Level::kProblem; });
}

std::string ToText(const std::vector<Line>& lines, size_t width) {
  check::Columns columns(width);
  for (const Line& line : lines) {
    const std::string name = fmt::format("{:<7}  {}", LevelName(line.level), line.name);
    columns.Add(name, line.advice.empty() ? line.found : line.found + "\n" + line.advice);
  }
  return columns.Text() + Verdict(lines);
}

boost::json::object ToJson(const std::vector<Line>& lines) {
  boost::json::array array;
  for (const Line& line : lines) {
    boost::json::object object{
        {"name", line.name}, {"level", LevelName(line.level)}, {"found", line.found}};
    if (!line.advice.empty()) object["advice"] = line.advice;
    array.push_back(std::move(object));
  }
  return {{"ok", CanServe(lines)}, {"lines", std::move(array)}};
}

}  // namespace stagecoach::doctor
