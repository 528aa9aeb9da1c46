#include "common/user_folder.h"

#include <cstdlib>
#include <string>

#include "catch2/catch_test_macros.hpp"

namespace stagecoach {
namespace {

TEST_CASE("A user's folder is where the variable says, or below the home directory") {
  const char* const before = std::getenv("HOME");
  const std::string home = before == nullptr ? "" : before;
  setenv("HOME", "/home/ann", 1);
  unsetenv("STAGECOACH_TEST_HOME");
  CHECK(UserFolder("STAGECOACH_TEST_HOME", ".cache") == "/home/ann/.cache/stagecoach");
  setenv("STAGECOACH_TEST_HOME", "", 1);
  CHECK(UserFolder("STAGECOACH_TEST_HOME", ".cache") == "/home/ann/.cache/stagecoach");
  setenv("STAGECOACH_TEST_HOME", "/fast", 1);
  CHECK(UserFolder("STAGECOACH_TEST_HOME", ".cache") == "/fast/stagecoach");
  unsetenv("STAGECOACH_TEST_HOME");
  unsetenv("HOME");
  CHECK(UserFolder("STAGECOACH_TEST_HOME", ".cache").empty());
  if (before != nullptr) setenv("HOME", home.c_str(), 1);
}

}  // namespace
}  // namespace stagecoach
