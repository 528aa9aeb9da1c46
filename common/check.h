// Assertions on our own invariants. They stay on in release builds. Conditions that a user, a
// checkpoint or the environment can cause are reported as absl::Status instead.
#pragma once

#include <cstdio>
#include <cstdlib>

namespace stagecoach::internal {

[[noreturn]] inline void CheckFailed(const char* file, int line, const char* condition) {
  std::fprintf(stderr, "%s:%d: invariant broken: %s\n", file, line, condition);
  std::abort();
}

}  // namespace stagecoach::internal

#define SC_CHECK(condition)                                                \
  do {                                                                     \
    if (!(condition)) [[unlikely]]                                         \
      ::stagecoach::internal::CheckFailed(__FILE__, __LINE__, #condition); \
  } while (false)
