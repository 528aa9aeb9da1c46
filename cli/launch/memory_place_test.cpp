#include "cli/launch/memory_place.h"

#include <sys/mman.h>

#include <catch2/catch_test_macros.hpp>
#include <csignal>
#include <utility>

#include "common/fd_store/fd_store_client.h"

namespace stagecoach::launch {
namespace {

TEST_CASE("A replacement finds what was kept, unless the process failed by itself") {
  const std::pair<ChildExit, bool> ends[] = {
      {{.signal = SIGKILL}, true},  {{.signal = SIGTERM}, true},  {{.code = 0}, true},
      {{.signal = SIGSEGV}, false}, {{.signal = SIGABRT}, false}, {{.signal = SIGBUS}, false},
      {{.code = 1}, false},
  };
  for (const auto& [exit, is_found] : ends) {
    INFO(exit.Describe());
    MemoryPlace place;
    {
      FdStoreClient worker(*place.Connect());
      REQUIRE(worker.Keep("kv", "", UniqueFd(memfd_create("test", MFD_CLOEXEC))).ok());
    }
    place.End(exit);
    FdStoreClient replacement(*place.Connect());
    CHECK(replacement.Get("kv")->has_value() == is_found);
  }
}

}  // namespace
}  // namespace stagecoach::launch
