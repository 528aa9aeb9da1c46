#include "worker/kv_store/disk_tier.h"

#include <catch2/catch_test_macros.hpp>
#include <string>

#include "common/temp_dir.h"

namespace stagecoach::worker {
namespace {

TEST_CASE("a folder with or without a size") {
  CHECK(ParseDiskTier("/mnt/kv")->path == "/mnt/kv");
  CHECK(ParseDiskTier("/mnt/kv")->bytes == 0);
  CHECK(ParseDiskTier("kv:200GiB")->path == "kv");
  CHECK(ParseDiskTier("kv:200GiB")->bytes == uint64_t{200} << 30);
  CHECK(ParseDiskTier("/mnt/a:b/kv")->path == "/mnt/a:b/kv");
  CHECK(ParseDiskTier("/mnt/a:b/kv:4096")->path == "/mnt/a:b/kv");
  CHECK(ParseDiskTier("/mnt/a:b/kv:4096")->bytes == 4096);
}

TEST_CASE("what is no folder with a size is refused by name") {
  for (const std::string text : {"", ":1GiB", "kv:", "kv:big", "kv:-1", "kv:0", "kv:1:2x"}) {
    CAPTURE(text);
    const absl::Status status = ParseDiskTier(text).status();
    CHECK(status.code() == absl::StatusCode::kInvalidArgument);
    CHECK(std::string(status.message()).find("\"" + text + "\"") != std::string::npos);
  }
}

TEST_CASE("the size by default is half of what is free, with files that are there already") {
  const TempDir dir;
  const auto empty = DefaultDiskBytes(dir.File("a/kv"));
  REQUIRE(empty.ok());
  CHECK(*empty > 0);
  // Other programs use the disk meanwhile: a file without data is larger than what they take.
  constexpr uint64_t kSparse = uint64_t{1} << 40;
  dir.Write("a/kv/layers-0-1.0/ab/file", "");
  std::filesystem::resize_file(dir.File("a/kv/layers-0-1.0/ab/file"), kSparse);
  const auto with_file = DefaultDiskBytes(dir.File("a/kv"));
  REQUIRE(with_file.ok());
  CHECK(*with_file > kSparse / 2);
  CHECK(DefaultDiskBytes("/proc/stagecoach").status() != absl::OkStatus());
}

}  // namespace
}  // namespace stagecoach::worker
