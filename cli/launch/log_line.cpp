#include "cli/launch/log_line.h"

#include <fmt/format.h>

#include <boost/json.hpp>
#include <chrono>
#include <ctime>

namespace stagecoach::launch {
namespace {

namespace json = boost::json;

std::string Now(LogFormat format) {
  const auto now = std::chrono::system_clock::now();
  const std::time_t seconds = std::chrono::system_clock::to_time_t(now);
  const auto ms =
      std::chrono::duration_cast<std::chrono::milliseconds>(now.time_since_epoch()).count() % 1000;
  const bool is_json = format == LogFormat::kJson;
  std::tm parts{};
  is_json ? gmtime_r(&seconds, &parts) : localtime_r(&seconds, &parts);
  char text[32];
  std::strftime(text, sizeof text, is_json ? "%Y-%m-%dT%H:%M:%S" : "%Y-%m-%d %H:%M:%S", &parts);
  return fmt::format("{}.{:03}{}", text, ms, is_json ? "Z" : "");
}

// Position of the program's name in "2026-01-31 12:00:00.123 I program: "; 0 if the line has
// another form.
size_t ProgramOf(std::string_view line) {
  constexpr std::string_view kShape = "0000-00-00 00:00:00.000 A ";
  if (line.size() < kShape.size()) return 0;
  for (size_t i = 0; i < kShape.size(); ++i) {
    if (kShape[i] == 'A') continue;
    const bool is_digit = line[i] >= '0' && line[i] <= '9';
    if (kShape[i] == '0' ? !is_digit : line[i] != kShape[i]) return 0;
  }
  return kShape.size();
}

// A new log line under the child's name.
std::string NewLine(LogFormat format, std::string_view child, std::string_view message) {
  if (format == LogFormat::kText) return fmt::format("{} I {}: {}\n", Now(format), child, message);
  const json::object line{
      {"time", Now(format)}, {"level", "info"}, {"program", child}, {"message", message}};
  return json::serialize(line) + '\n';
}

}  // namespace

std::string ChildLine(LogFormat format, std::string_view child, std::string_view line) {
  if (format == LogFormat::kText) {
    const size_t program = ProgramOf(line);
    const size_t colon = program == 0 ? line.npos : line.find(": ", program);
    if (colon == line.npos) return NewLine(format, child, line);
    return fmt::format("{}{}{}\n", line.substr(0, program), child, line.substr(colon));
  }
  boost::system::error_code error;
  json::value parsed = json::parse({line.data(), line.size()}, error);
  if (error || !parsed.is_object() || !parsed.get_object().contains("message")) {
    return NewLine(format, child, line);
  }
  parsed.get_object()["program"] = child;
  return json::serialize(parsed) + '\n';
}

std::optional<std::string> FatalMessage(LogFormat format, std::string_view line) {
  constexpr std::string_view kPrefix = "error: ";
  // Whatever the format, errors before the child has read its flags are text.
  if (line.starts_with(kPrefix)) return std::string(line.substr(kPrefix.size()));
  // Few lines are parsed here: ChildLine parses all that are passed on.
  if (format == LogFormat::kText || line.find("critical") == line.npos) return std::nullopt;
  boost::system::error_code error;
  const json::value parsed = json::parse({line.data(), line.size()}, error);
  const json::object* const object = error ? nullptr : parsed.if_object();
  if (object == nullptr || !object->contains("level") || object->at("level") != "critical") {
    return std::nullopt;
  }
  const json::value* const message = object->if_contains("message");
  if (message == nullptr || !message->is_string()) return std::nullopt;
  return std::string(message->get_string());
}

}  // namespace stagecoach::launch
