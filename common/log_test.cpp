#include "common/log.h"

#include <spdlog/spdlog.h>

#include <catch2/catch_test_macros.hpp>

namespace stagecoach {
namespace {

TEST_CASE("a wrong log level is named with the right ones") {
  const absl::Status status = InitLog("test", "loud");
  CHECK(status.code() == absl::StatusCode::kInvalidArgument);
  CHECK(status.message().find("debug") != absl::string_view::npos);
}

TEST_CASE("the level is set on the default logger") {
  REQUIRE(InitLog("test_level", "warning").ok());
  CHECK(spdlog::default_logger()->level() == spdlog::level::warn);
}

}  // namespace
}  // namespace stagecoach
