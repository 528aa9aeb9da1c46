#include "worker/kv_store/dir_kv_store.h"

#include <sys/resource.h>
#include <sys/stat.h>

#include <catch2/catch_test_macros.hpp>
#include <csignal>
#include <filesystem>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "common/temp_dir.h"

namespace stagecoach::worker {
namespace {

namespace fs = std::filesystem;

constexpr char kFile[] = "ab/ab000000000000000000000000000001-12";
const std::vector<KvKey> kKeys = {
    {.block = {0xab, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1}, .layer = 12}};
const std::vector<KvValue> kValues = {{kKeys[0], "value"}};

KvStore::Clock::time_point Later() { return KvStore::Clock::now() + std::chrono::minutes(1); }

size_t CountFiles(const TempDir& dir) {
  size_t n = 0;
  for (const auto& entry : fs::recursive_directory_iterator(dir.path()))
    n += entry.is_regular_file();
  return n;
}

TEST_CASE("values lie in documented files that nobody else reads") {
  const TempDir dir;
  DirKvStore store(dir.path(), 100);
  REQUIRE(store.Put(kValues, Later()).ok());
  CHECK(CountFiles(dir) == 1);
  CHECK(fs::file_size(dir.File(kFile)) == 5);
  CHECK(fs::status(dir.File(kFile)).permissions() ==
        (fs::perms::owner_read | fs::perms::owner_write));
}

TEST_CASE("a reader sees a whole value or none while others write it") {
  const TempDir dir;
  constexpr size_t kBytes = 100'000;
  const auto write = [&dir](char c) {
    DirKvStore store(dir.path(), kBytes);
    const std::string bytes(kBytes, c);
    for (int i = 0; i < 200; ++i) {
      if (!store.Put(std::vector<KvValue>{{kKeys[0], bytes}}, Later()).ok()) return;
    }
  };
  std::jthread a(write, 'a'), b(write, 'b');
  DirKvStore store(dir.path(), kBytes);
  for (int i = 0; i < 200; ++i) {
    const auto found = store.Get(kKeys, Later());
    REQUIRE(found.ok());
    const auto& value = (*found)[0];
    if (!value.has_value()) continue;
    REQUIRE(!value->empty());
    REQUIRE(*value == std::string(kBytes, value->front()));
  }
  a.join();
  b.join();
  CHECK(CountFiles(dir) == 1);
}

TEST_CASE("what is no file of ours is a missing value") {
  const TempDir dir;
  DirKvStore store(dir.path(), 100);
  fs::create_directories(dir.File(kFile));
  CHECK(store.Get(kKeys, Later())->at(0) == std::nullopt);
  fs::remove(dir.File(kFile));
  REQUIRE(mkfifo(dir.File(kFile).c_str(), 0600) == 0);
  CHECK(store.Get(kKeys, Later())->at(0) == std::nullopt);
  fs::remove_all(dir.File("ab"));
  dir.Write("ab", "a file instead of a folder");
  CHECK(store.Get(kKeys, Later())->at(0) == std::nullopt);
  CHECK_FALSE(store.Put(kValues, Later()).ok());
}

TEST_CASE("a value that cannot be written is an error of Put only, and leaves no file") {
  const TempDir dir;
  DirKvStore store(dir.path(), 1'000'000);
  REQUIRE(store.Put(kValues, Later()).ok());
  // The kernel refuses longer files. Without a handler, its signal would end the process.
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  rlimit limit;
  REQUIRE(getrlimit(RLIMIT_FSIZE, &limit) == 0);
  const rlimit small{.rlim_cur = 1'000, .rlim_max = limit.rlim_max};
  REQUIRE(setrlimit(RLIMIT_FSIZE, &small) == 0);
  const std::string bytes(100'000, 'x');
  const absl::Status status = store.Put(std::vector<KvValue>{{kKeys[0], bytes}}, Later());
  setrlimit(RLIMIT_FSIZE, &limit);
  std::signal(SIGXFSZ, handler);
  CHECK_FALSE(status.ok());
  CHECK(std::string(status.message()).find(dir.File(kFile)) != std::string::npos);
  CHECK(CountFiles(dir) == 1);
  CHECK(store.Get(kKeys, Later())->at(0) == "value");
}

TEST_CASE("a folder that cannot be created") {
  DirKvStore store("/proc/stagecoach", 100);  // also root has no right to
  CHECK(store.Get(kKeys, Later())->at(0) == std::nullopt);
  CHECK_FALSE(store.Put(kValues, Later()).ok());
}

}  // namespace
}  // namespace stagecoach::worker
