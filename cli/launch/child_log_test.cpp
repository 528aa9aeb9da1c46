#include "cli/launch/child_log.h"

#include <catch2/catch_test_macros.hpp>

namespace stagecoach::launch {
namespace {

TEST_CASE("A child's own error is the cause, together with its indented lines") {
  ChildLog log("router", false);
  log.Add("loading");
  log.Add("error: /m/config.json: no such file");
  log.Add("  pass the model's folder");
  log.Add("bye");
  CHECK(log.Cause({.code = 1, .signal = 0}) ==
        "router: /m/config.json: no such file\n  pass the model's folder");
}

TEST_CASE("in a JSON log, a child's critical line is the cause") {
  ChildLog log("router", false, LogFormat::kJson);
  log.Add(R"({"time":"","level":"info","program":"router","message":"loading"})");
  log.Add(R"({"time":"","level":"critical","program":"router","message":"two\nlines"})");
  log.Add(R"({"time":"","level":"info","program":"router","message":"bye"})");
  CHECK(log.Cause({.code = 1, .signal = 0}) == "router: two\nlines");
}

TEST_CASE("Without an error line, the cause is the exit status and the last output") {
  ChildLog log("worker 1", false);
  CHECK(log.Cause({.code = 0, .signal = 9}) == "worker 1 was killed by signal 9 (Killed)");
  for (int i = 0; i < 20; ++i) log.Add("line " + std::to_string(i));
  const std::string cause = log.Cause({.code = 3, .signal = 0});
  CHECK(cause.starts_with("worker 1 exited with code 3; it last wrote:\n  line 12\n"));
  CHECK(cause.ends_with("\n  line 19"));
}

}  // namespace
}  // namespace stagecoach::launch
