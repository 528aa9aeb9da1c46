#include "router/frontend/http/dropped.h"

#include <spdlog/sinks/ostream_sink.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <memory>
#include <sstream>
#include <string>

#include "catch2/catch_test_macros.hpp"

namespace stagecoach::router::http {
namespace {

// What is logged while this object lives.
class LogText {
 public:
  LogText() : before_(spdlog::default_logger()) {
    spdlog::set_default_logger(std::make_shared<spdlog::logger>(
        "test", std::make_shared<spdlog::sinks::ostream_sink_st>(text_)));
    spdlog::set_pattern("%l: %v");
  }
  ~LogText() { spdlog::set_default_logger(before_); }
  std::string text() const { return text_.str(); }

 private:
  std::ostringstream text_;
  const std::shared_ptr<spdlog::logger> before_;
};

TEST_CASE("what is left out is logged once, in printable characters, and not for ever") {
  const LogText log;
  NoteDropped("a test's hint\n");
  NoteDropped("a test's hint\n");
  CHECK(log.text() ==
        "info: a request asks for a test's hint?, which this server leaves out; this is logged "
        "once\n");
  for (int i = 0; i < 500; ++i) NoteDropped("name " + std::to_string(i) + std::string(500, 'x'));
  const std::string text = log.text();
  CHECK(std::count(text.begin(), text.end(), '\n') <= 64);
  CHECK(text.size() < size_t{64} * 200);
}

}  // namespace
}  // namespace stagecoach::router::http
