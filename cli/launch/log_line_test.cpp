#include "cli/launch/log_line.h"

#include <boost/json.hpp>
#include <catch2/catch_test_macros.hpp>

namespace stagecoach::launch {
namespace {

TEST_CASE("a text line from a child carries only the child's name") {
  CHECK(ChildLine(LogFormat::kText, "worker 1", "2026-01-31 12:00:00.123 W worker: a: b") ==
        "2026-01-31 12:00:00.123 W worker 1: a: b\n");
  const std::string other = ChildLine(LogFormat::kText, "worker 1", "free(): invalid pointer");
  CHECK(other.starts_with("20"));
  CHECK(other.ends_with(" I worker 1: free(): invalid pointer\n"));
}

TEST_CASE("every line of a JSON log is an object") {
  const auto parsed = [](const std::string& line) { return boost::json::parse(line).as_object(); };
  const auto own = parsed(ChildLine(
      LogFormat::kJson, "worker 1",
      R"({"time":"2026-01-31T12:00:00.123Z","level":"info","program":"worker","message":"x"})"));
  CHECK(own.at("program") == "worker 1");
  CHECK(own.at("time") == "2026-01-31T12:00:00.123Z");
  const auto cut = parsed(ChildLine(LogFormat::kJson, "router", R"({"time":"2026)"));
  CHECK(cut.at("program") == "router");
  CHECK(cut.at("message") == R"({"time":"2026)");
}

}  // namespace
}  // namespace stagecoach::launch
