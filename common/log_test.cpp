#include "common/log.h"

#include <spdlog/spdlog.h>
#include <unistd.h>

#include <boost/json.hpp>
#include <catch2/catch_test_macros.hpp>
#include <chrono>
#include <cstdio>
#include <string>

#include "common/log_writer.h"
#include "common/signal_log.h"

namespace stagecoach {
namespace {

TEST_CASE("the error for a wrong log level lists the valid ones") {
  const absl::Status status = InitLog("test", "loud");
  CHECK(status.code() == absl::StatusCode::kInvalidArgument);
  CHECK(status.message().find("debug") != absl::string_view::npos);
}

TEST_CASE("the level is set on the default logger") {
  REQUIRE(InitLog("test_level", "warning").ok());
  CHECK(spdlog::default_logger()->level() == spdlog::level::warn);
}

// Returns what `log` writes to standard error.
template <typename Log>
std::string Written(const Log& log) {
  std::FILE* const file = std::tmpfile();
  REQUIRE(file != nullptr);
  REQUIRE(FlushStderr(std::chrono::seconds(60)));
  const int saved = dup(STDERR_FILENO);
  dup2(fileno(file), STDERR_FILENO);
  log();
  REQUIRE(FlushStderr(std::chrono::seconds(60)));
  dup2(saved, STDERR_FILENO);
  close(saved);
  std::rewind(file);
  std::string text(4096, '\0');
  text.resize(std::fread(text.data(), 1, text.size(), file));
  std::fclose(file);
  return text;
}

TEST_CASE("a JSON line is valid for any message and contains the request id") {
  REQUIRE(InitLog("test_json", "info", "json").ok());
  const std::string line = Written([] {
    const std::string id = "a\"b";
    const LogRequest about(id);
    spdlog::info("two\nlines, a \"quote\", a \\ and a \x01");
  });
  CHECK(line.find(
            "\"level\":\"info\",\"program\":\"test_json\",\"request_id\":\"a\\\"b\",\"message\":"
            "\"two\\nlines, a \\\"quote\\\", a \\\\ and a \\u0001\"}\n") != std::string::npos);
  CHECK(line.starts_with("{\"time\":\"20"));
  CHECK(Written([] { spdlog::info("later"); }).find("request_id") == std::string::npos);
}

TEST_CASE("a fatal line is an object in a JSON log, whatever the level, and has a prefix in text") {
  REQUIRE(InitLog("test_fatal", "off", "json").ok());
  const std::string object = Written([] { LogFatal("one\ntwo"); });
  CHECK(object.starts_with("{\"time\":\"20"));
  CHECK(object.ends_with(
      "\"level\":\"critical\",\"program\":\"test_fatal\",\"message\":\"one\\ntwo\"}\n"));
  REQUIRE(InitLog("test_fatal", "off").ok());
  CHECK(Written([] { LogFatal("one\ntwo\n  three"); }) == "error: one\n  two\n    three\n");
  CHECK(Written([] { LogFatal("one\n  two\n   three"); }) == "error: one\n  two\n   three\n");
}

TEST_CASE("a line from a signal handler has the log's format") {
  const auto log = [] {
    LogFromSignal(SignalLogLevel::kCritical, "cannot read ", "/a \"b\"\n", "", 1000);
  };
  REQUIRE(InitLog("test_signal", "info", "json").ok());
  const boost::json::object line = boost::json::parse(Written(log)).as_object();
  CHECK(line.at("level") == "critical");
  CHECK(line.at("program") == "test_signal");
  CHECK(line.at("message") == "cannot read /a \"b\"\n");
  const std::string ours = boost::json::value_to<std::string>(line.at("time"));
  const std::string logged = Written([] { spdlog::info("now"); });
  CHECK(ours.size() == std::string("2026-01-31T12:00:00.123Z").size());
  CHECK(logged.find(ours.substr(0, 11)) != std::string::npos);  // the date
  REQUIRE(InitLog("test_signal", "info").ok());
  CHECK(Written(log) == "error: cannot read /a \"b\"\n\n");
}

TEST_CASE("a text line begins with the request id") {
  REQUIRE(InitLog("test_text", "info").ok());
  const std::string line = Written([] {
    const std::string id = "req-1";
    const LogRequest about(id);
    spdlog::info("hello");
  });
  CHECK(line.ends_with(" test_text: req-1: hello\n"));
}

}  // namespace
}  // namespace stagecoach
