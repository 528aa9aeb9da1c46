#include "kernels/shared_buffer.h"

#include <unistd.h>

#include <catch2/catch_test_macros.hpp>
#include <cstdint>
#include <cstring>
#include <utility>

namespace stagecoach::kernels {
namespace {

constexpr size_t kBytes = 10000;

TEST_CASE("shared memory starts as zeros and keeps its contents for the next one who maps it") {
  auto made = AllocateSharedHost(kBytes);
  REQUIRE(made.ok());
  CHECK(made->buffer.bytes == kBytes);
  CHECK(made->buffer.As<char>()[kBytes - 1] == 0);
  std::memset(made->buffer.data.get(), 7, kBytes);
  const UniqueFd fd = std::move(made->fd);
  made->buffer = {};

  const auto mapped = MapSharedHost(fd.get(), kBytes);
  REQUIRE(mapped.ok());
  CHECK(mapped->As<char>()[0] == 7);
  CHECK(mapped->As<char>()[kBytes - 1] == 7);
}

TEST_CASE("shared memory keeps its contents on huge pages") {
  constexpr size_t kLarge = (size_t{5} << 20) + 123;
  const auto made = AllocateSharedHost(kLarge);
  REQUIRE(made.ok());
  char* const bytes = made->buffer.As<char>();
  CHECK(reinterpret_cast<uintptr_t>(bytes) % (size_t{2} << 20) == 0);
  for (size_t i = 0; i < kLarge; ++i) bytes[i] = static_cast<char>(i % 101);
  UseHugePages(made->buffer);
  const auto mapped = MapSharedHost(made->fd.get(), kLarge);
  REQUIRE(mapped.ok());
  CHECK(std::memcmp(bytes, mapped->data.get(), kLarge) == 0);
  CHECK(bytes[kLarge - 1] == static_cast<char>((kLarge - 1) % 101));
}

TEST_CASE("shared memory of another size is refused") {
  const auto made = AllocateSharedHost(kBytes);
  REQUIRE(made.ok());
  CHECK(absl::IsInvalidArgument(MapSharedHost(made->fd.get(), kBytes + 1).status()));
  CHECK(absl::IsInvalidArgument(MapSharedHost(-1, kBytes).status()));
}

}  // namespace
}  // namespace stagecoach::kernels
