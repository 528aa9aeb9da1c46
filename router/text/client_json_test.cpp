#include "router/text/client_json.h"

#include <cstdint>
#include <new>
#include <set>
#include <string>

#include "catch2/catch_test_macros.hpp"

namespace stagecoach::router {
namespace {

TEST_CASE("the offset of a large JSON block within its page is unpredictable") {
  std::set<uintptr_t> places;
  for (int i = 0; i < 100; ++i) {
    const auto memory = ClientJsonMemory();
    void* const block = memory->allocate(1 << 20, alignof(void*));
    CHECK(reinterpret_cast<uintptr_t>(block) % __STDCPP_DEFAULT_NEW_ALIGNMENT__ == 0);
    places.insert(reinterpret_cast<uintptr_t>(block) % 4096);
    memory->deallocate(block, 1 << 20, alignof(void*));
  }
  CHECK(places.size() > 10);  // of 256 possible offsets within a page
}

TEST_CASE("a client's JSON takes no more memory than its limit") {
  const auto memory = ClientJsonMemory(10'000);
  void* const large = memory->allocate(9'000, 8);
  void* const small = memory->allocate(1'000, 8);
  CHECK_THROWS_AS(memory->allocate(1, 8), std::bad_alloc);
  memory->deallocate(small, 1'000, 8);
  CHECK_THROWS_AS(memory->allocate(1'001, 8), std::bad_alloc);
  memory->deallocate(large, 9'000, 8);
  memory->deallocate(memory->allocate(10'000, 8), 10'000, 8);

  boost::system::error_code error;
  std::string many = "[";
  for (int i = 0; i < 7'000'000; ++i) many += "1,";
  CHECK(ParseClientJson(many + "1]", error).is_null());
  CHECK(error);
  CHECK(ParseClientJson("[1]", error).is_array());
  CHECK_FALSE(error);
}

}  // namespace
}  // namespace stagecoach::router
