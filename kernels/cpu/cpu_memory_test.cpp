#include "kernels/cpu/cpu_memory.h"

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <cstdint>

#include "common/left_behind.h"

namespace stagecoach::kernels {
namespace {

TEST_CASE("memory is zeroed and aligned") {
  for (const size_t bytes : {size_t{1}, size_t{1000}, size_t{512} << 10, size_t{3} << 20}) {
    const auto buffer = AllocateCpu(bytes);
    REQUIRE(buffer.ok());
    CHECK(buffer->bytes == bytes);
    const auto* data = static_cast<const uint8_t*>(buffer->data.get());
    CHECK(reinterpret_cast<uintptr_t>(data) % 64 == 0);
    CHECK(std::all_of(data, data + bytes, [](uint8_t value) { return value == 0; }));
  }
}

TEST_CASE("freed memory goes back to the OS, whichever thread took it") {
  constexpr size_t kBytes = size_t{1} << 20;
  CHECK(LeftBehind([] {
          const auto buffer = AllocateCpu(kBytes);
          REQUIRE(buffer.ok());
          auto* data = static_cast<uint8_t*>(buffer->data.get());
          std::fill(data, data + kBytes, 1);
        }) < int64_t{4} << 20);
}

}  // namespace
}  // namespace stagecoach::kernels
