#include "worker/kv_store/disk_kv_store.h"

#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <catch2/catch_test_macros.hpp>
#include <csignal>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "common/temp_dir.h"
#include "worker/kv_store/kv_entry.h"

namespace stagecoach::worker {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMaxValueBytes = 100'000;
constexpr uint64_t kPlenty = 1 << 30;
const std::array<int32_t, kKvBlockTokens> kTokens{};

KvStore::Clock::time_point Later() { return KvStore::Clock::now() + std::chrono::minutes(1); }

KvKey KeyOf(uint8_t block, uint32_t layer) { return {.block = {0xab, block}, .layer = layer}; }

std::unique_ptr<DiskKvStore> OpenDisk(const std::string& path, uint64_t max_bytes = kPlenty,
                                      KvLayers layers = {.first = 0, .last = 1}) {
  auto store = DiskKvStore::Open(
      {.path = path, .layers = layers, .max_bytes = max_bytes, .max_value_bytes = kMaxValueBytes});
  INFO(store.status());
  REQUIRE(store.ok());
  return *std::move(store);
}

std::vector<std::string> FilesIn(const std::string& path) {
  std::vector<std::string> files;
  for (const auto& entry : fs::recursive_directory_iterator(path)) {
    if (entry.is_regular_file()) files.push_back(entry.path().string());
  }
  return files;
}

uint64_t BytesIn(const std::string& path) {
  uint64_t bytes = 0;
  for (const std::string& file : FilesIn(path)) bytes += DiskBytes(fs::file_size(file));
  return bytes;
}

// Puts the layers of a block: 3,000 bytes each, so that two are 8 KiB on the disk.
constexpr uint64_t kBlockBytes = 8192;

std::string ValueOf(const KvKey& key) {
  return EncodeKvEntry(key, kTokens, std::string(3'000 - kKvEntryHeaderBytes, 'x'));
}

absl::Status PutBlocks(KvStore& store, const std::vector<uint8_t>& blocks,
                       KvLayers layers = {.first = 0, .last = 1}) {
  std::vector<std::string> bytes;
  std::vector<KvKey> keys;
  for (const uint8_t block : blocks) {
    for (uint32_t layer = layers.first; layer <= layers.last; ++layer) {
      keys.push_back(KeyOf(block, layer));
      bytes.push_back(ValueOf(keys.back()));
    }
  }
  std::vector<KvValue> values;
  values.reserve(keys.size());
  for (size_t i = 0; i < keys.size(); ++i) values.push_back({keys[i], bytes[i]});
  return store.Put(values, Later());
}

// Whether the value is there, and is what PutBlocks has put.
bool Has(KvStore& store, uint8_t block, uint32_t layer = 0) {
  const auto found = store.Get(std::vector{KeyOf(block, layer)}, Later());
  REQUIRE(found.ok());
  const std::optional<std::string>& value = found->at(0);
  if (!value) return false;
  CHECK(*value == ValueOf(KeyOf(block, layer)));
  return true;
}

std::vector<uint8_t> BlocksIn(KvStore& store, uint8_t n) {
  std::vector<uint8_t> blocks;
  for (uint8_t block = 0; block < n; ++block) {
    if (Has(store, block)) blocks.push_back(block);
  }
  return blocks;
}

TEST_CASE("disk tier: a store returns what was put, in the order of the keys") {
  const TempDir dir;
  const auto store = OpenDisk(dir.File("a/b"));
  const std::vector<KvValue> values = {{KeyOf(1, 0), "first"},
                                       {KeyOf(1, 1), std::string_view("\0\r\n", 3)},
                                       {KeyOf(2, 0), "other block"}};
  REQUIRE(store->Put(values, Later()).ok());
  const std::vector<KvKey> keys = {KeyOf(2, 0), KeyOf(2, 1), KeyOf(1, 1),
                                   KeyOf(1, 0), KeyOf(9, 0), KeyOf(2, 0)};
  const auto found = store->Get(keys, Later());
  REQUIRE(found.ok());
  CHECK(*found == std::vector<std::optional<std::string>>{"other block", std::nullopt,
                                                          std::string("\0\r\n", 3), "first",
                                                          std::nullopt, "other block"});
  // A file counts as its block's, whichever of its layers it has.
  CHECK(store->Has(keys, Later()).value() ==
        std::vector<bool>{true, true, true, true, false, true});
  CHECK(store->Get({}, Later())->empty());
  CHECK(store->Put({}, Later()).ok());
  REQUIRE(store->Put(std::vector<KvValue>{{KeyOf(1, 0), "again"}}, Later()).ok());
  CHECK(store->Get(std::vector{KeyOf(1, 0)}, Later())->at(0) == "again");
  CHECK(store->usage().n_files == 2);
  CHECK(store->usage().bytes == 8192);
}

TEST_CASE("disk tier: a call whose deadline has passed fails, and the next one succeeds") {
  const TempDir dir;
  const auto store = OpenDisk(dir.path());
  const auto past = KvStore::Clock::now() - std::chrono::seconds(1);
  const std::vector<KvValue> values = {{KeyOf(1, 0), "value"}};
  CHECK(store->Put(values, past).code() == absl::StatusCode::kUnavailable);
  CHECK(store->Put(values, Later()).ok());
  CHECK(store->Get(std::vector{KeyOf(1, 0)}, past).status().code() ==
        absl::StatusCode::kUnavailable);
  CHECK(store->Get(std::vector{KeyOf(1, 0)}, Later())->at(0) == "value");
}

TEST_CASE("disk tier: the bound holds, and the blocks that were used longest ago give way") {
  const TempDir dir;
  const auto store = OpenDisk(dir.path(), 4 * kBlockBytes);
  for (uint8_t block = 0; block < 20; ++block) {
    REQUIRE(PutBlocks(*store, {block}).ok());
    CHECK(BytesIn(dir.path()) <= 4 * kBlockBytes);
    CHECK(BytesIn(dir.path()) == store->usage().bytes);
  }
  CHECK(BlocksIn(*store, 20) == std::vector<uint8_t>{16, 17, 18, 19});
  CHECK(Has(*store, 16));
  REQUIRE(PutBlocks(*store, {20}).ok());
  CHECK(BlocksIn(*store, 21) == std::vector<uint8_t>{16, 18, 19, 20});
}

TEST_CASE("disk tier: of the blocks of a call, the last one gives way first") {
  const TempDir dir;
  const auto store = OpenDisk(dir.path(), 4 * kBlockBytes);
  REQUIRE(PutBlocks(*store, {0, 1, 2, 3}).ok());
  REQUIRE(PutBlocks(*store, {4}).ok());
  REQUIRE(store->Get(std::vector{KeyOf(0, 0), KeyOf(1, 0), KeyOf(2, 0)}, Later()).ok());
  REQUIRE(PutBlocks(*store, {5, 6}).ok());
  CHECK(BlocksIn(*store, 7) == std::vector<uint8_t>{0, 1, 5, 6});
}

TEST_CASE("disk tier: a block that is larger than the bound is refused and removes nothing") {
  const TempDir dir;
  const auto store = OpenDisk(dir.path(), kBlockBytes);
  REQUIRE(PutBlocks(*store, {1}).ok());
  const std::string bytes(kBlockBytes, 'x');
  CHECK(store->Put(std::vector<KvValue>{{KeyOf(2, 0), bytes}}, Later()).code() ==
        absl::StatusCode::kResourceExhausted);
  CHECK(Has(*store, 1));
}

TEST_CASE("disk tier: after a restart a store has what it had, in the same order of use") {
  const TempDir dir;
  {
    const auto store = OpenDisk(dir.path(), 4 * kBlockBytes);
    REQUIRE(PutBlocks(*store, {0}).ok());
    REQUIRE(PutBlocks(*store, {1}).ok());
    REQUIRE(PutBlocks(*store, {2}).ok());
    REQUIRE(PutBlocks(*store, {3}).ok());
    CHECK(Has(*store, 0));
  }
  const auto store = OpenDisk(dir.path(), 4 * kBlockBytes);
  CHECK(store->usage().n_files == 4);
  REQUIRE(PutBlocks(*store, {4, 5}).ok());
  CHECK(BlocksIn(*store, 6) == std::vector<uint8_t>{0, 3, 4, 5});
}

TEST_CASE("disk tier: a smaller bound after a restart removes the oldest blocks") {
  const TempDir dir;
  for (uint8_t block = 0; block < 4; ++block) {
    REQUIRE(PutBlocks(*OpenDisk(dir.path()), {block}).ok());
  }
  const auto store = OpenDisk(dir.path(), 2 * kBlockBytes);
  CHECK(BytesIn(dir.path()) == 2 * kBlockBytes);
  CHECK(BlocksIn(*store, 4) == std::vector<uint8_t>{2, 3});
}

TEST_CASE("disk tier: half-written files are removed, and files of others stay") {
  const TempDir dir;
  REQUIRE(PutBlocks(*OpenDisk(dir.path()), {1}).ok());
  const std::string folder = fs::path(FilesIn(dir.path())[0]).parent_path().string();
  dir.Write(fs::relative(folder + "/new-abcdef", dir.path()).string(), "half");
  dir.Write(fs::relative(folder + "/README", dir.path()).string(), "mine");
  dir.Write("notes.txt", "mine");
  const auto store = OpenDisk(dir.path(), kBlockBytes);
  CHECK_FALSE(fs::exists(folder + "/new-abcdef"));
  CHECK(fs::exists(folder + "/README"));
  CHECK(fs::exists(dir.File("notes.txt")));
  CHECK(Has(*store, 1));
}

TEST_CASE("disk tier: a torn file is a missing value, and is removed") {
  const TempDir dir;
  const auto store = OpenDisk(dir.path());
  REQUIRE(PutBlocks(*store, {1}).ok());
  const std::string file = FilesIn(dir.path())[0];
  const size_t n_whole = fs::file_size(file);
  for (const size_t n_bytes : {size_t{0}, size_t{7}, size_t{20}, size_t{5'000}, n_whole + 1}) {
    CAPTURE(n_bytes);
    fs::resize_file(file, n_bytes);
    CHECK_FALSE(Has(*store, 1));
    CHECK_FALSE(fs::exists(file));
    CHECK(store->usage().bytes == 0);
    REQUIRE(PutBlocks(*store, {1}).ok());
    CHECK(Has(*store, 1));
  }
}

TEST_CASE("disk tier: a file that somebody has removed is a missing value") {
  const TempDir dir;
  const auto store = OpenDisk(dir.path());
  REQUIRE(PutBlocks(*store, {1}).ok());
  fs::remove(FilesIn(dir.path())[0]);
  CHECK_FALSE(Has(*store, 1));
  CHECK(store->usage().bytes == 0);
}

TEST_CASE("disk tier: whoever finds a damaged value drops its block") {
  const TempDir dir;
  const auto store = OpenDisk(dir.path());
  REQUIRE(PutBlocks(*store, {1, 2}).ok());
  store->Drop(KeyOf(1, 1));
  CHECK(BlocksIn(*store, 3) == std::vector<uint8_t>{2});
  CHECK(BytesIn(dir.path()) == kBlockBytes);
}

TEST_CASE("disk tier: a block that cannot be written is an error of Put only, and leaves no file") {
  const TempDir dir;
  const auto store = OpenDisk(dir.path());
  REQUIRE(PutBlocks(*store, {1}).ok());
  // The kernel refuses longer files. Without a handler, its signal would end the process.
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  rlimit limit;
  REQUIRE(getrlimit(RLIMIT_FSIZE, &limit) == 0);
  const rlimit small{.rlim_cur = 1'000, .rlim_max = limit.rlim_max};
  REQUIRE(setrlimit(RLIMIT_FSIZE, &small) == 0);
  const absl::Status status = PutBlocks(*store, {2});
  setrlimit(RLIMIT_FSIZE, &limit);
  std::signal(SIGXFSZ, handler);
  CHECK_FALSE(status.ok());
  CHECK(std::string(status.message()).find(dir.path()) != std::string::npos);
  CHECK(FilesIn(dir.path()).size() == 1);
  CHECK(store->usage().bytes == kBlockBytes);
  CHECK(Has(*store, 1));
  CHECK(PutBlocks(*store, {2}).ok());
}

TEST_CASE("disk tier: a folder that cannot be created") {
  const auto store = DiskKvStore::Open({.path = "/proc/stagecoach",  // also root has no right to
                                        .layers = {.first = 0, .last = 0},
                                        .max_bytes = 1,
                                        .max_value_bytes = 1});
  CHECK_FALSE(store.ok());
  CHECK(std::string(store.status().message()).find("/proc/stagecoach") != std::string::npos);
}

TEST_CASE(
    "disk tier: two servers with the same layers write into folders of their own and read both") {
  const TempDir dir;
  const auto one = OpenDisk(dir.path(), 2 * kBlockBytes);
  REQUIRE(PutBlocks(*one, {1, 2}).ok());
  const auto other = OpenDisk(dir.path(), 2 * kBlockBytes);
  CHECK(one->name() != other->name());
  REQUIRE(PutBlocks(*other, {3, 4}).ok());
  CHECK(FilesIn(dir.path()).size() == 4);
  CHECK(BlocksIn(*other, 5) == std::vector<uint8_t>{1, 2, 3, 4});
  REQUIRE(PutBlocks(*one, {5}).ok());
  CHECK(BlocksIn(*other, 6) == std::vector<uint8_t>{1, 3, 4, 5});
}

TEST_CASE(
    "disk tier: another split of the layers finds the blocks, and takes over what nobody uses") {
  const TempDir dir;
  constexpr KvLayers kLow{.first = 0, .last = 1}, kHigh{.first = 2, .last = 3};
  constexpr KvLayers kAll{.first = 0, .last = 3};
  {
    const auto low = OpenDisk(dir.path(), kPlenty, kLow),
               high = OpenDisk(dir.path(), kPlenty, kHigh);
    for (const uint8_t block : {1, 2}) {
      REQUIRE(PutBlocks(*low, {block}, kLow).ok());
      REQUIRE(PutBlocks(*high, {block}, kHigh).ok());
    }
  }
  {
    const auto all = OpenDisk(dir.path(), 4 * kBlockBytes, kAll);
    for (uint32_t layer = 0; layer < 4; ++layer) CHECK(Has(*all, 1, layer));
    CHECK(all->usage().bytes == 0);
    REQUIRE(PutBlocks(*all, {3}, kAll).ok());  // 12 KiB more give 16 KiB back
    CHECK(all->usage().bytes == BytesIn(dir.path()));
    CHECK(BytesIn(dir.path()) <= 4 * kBlockBytes);
    for (uint32_t layer = 0; layer < 4; ++layer) {
      CHECK(Has(*all, 1, layer));
      CHECK_FALSE(Has(*all, 2, layer));
      CHECK(Has(*all, 3, layer));
    }
  }
  const auto high = OpenDisk(dir.path(), kPlenty, kHigh), low = OpenDisk(dir.path(), kPlenty, kLow);
  REQUIRE(PutBlocks(*low, {4}, kLow).ok());  // has taken over the folder of all layers
  CHECK(Has(*low, 3, 1));
  CHECK(Has(*high, 3, 2));
  CHECK(Has(*high, 1, 2));
}

TEST_CASE("disk tier: threads share a store") {
  const TempDir dir;
  const auto store = OpenDisk(dir.path(), 6 * kBlockBytes);
  const auto work = [&store](uint8_t first) {
    for (int i = 0; i < 100; ++i) {
      const auto block = static_cast<uint8_t>(first + i % 8);
      if (!PutBlocks(*store, {block}).ok()) continue;  // the others fill it just now
      const auto found = store->Get(std::vector{KeyOf(block, 0), KeyOf(block, 1)}, Later());
      if (!found.ok()) std::abort();
    }
  };
  {
    const std::jthread a(work, 0), b(work, 4), c(work, 8);
  }
  CHECK(BytesIn(dir.path()) == store->usage().bytes);
  CHECK(store->usage().bytes <= 6 * kBlockBytes);
  for (const uint8_t block : BlocksIn(*store, 16)) CHECK(Has(*store, block, 1));
}

TEST_CASE("disk tier: a process may be killed at any time") {
  const TempDir dir;
  constexpr uint64_t kBound = 8 * kBlockBytes;
  for (int round = 0; round < 5; ++round) {
    const pid_t child = fork();
    REQUIRE(child >= 0);
    if (child == 0) {
      const auto store = OpenDisk(dir.path(), kBound);
      for (uint8_t block = 0;; ++block) {
        if (!PutBlocks(*store, {block}).ok()) _exit(1);
      }
    }
    // It has written something since it has its lock.
    const auto n_files = [&] { return FilesIn(dir.path()).size(); };
    while (n_files() < 4) std::this_thread::yield();
    kill(child, SIGKILL);
    int status = 0;
    REQUIRE(waitpid(child, &status, 0) == child);
    REQUIRE(WIFSIGNALED(status));
    const auto store = OpenDisk(dir.path(), kBound);
    CHECK(store->usage().bytes == BytesIn(dir.path()));
    CHECK(store->usage().bytes <= kBound);
    CHECK(store->usage().n_files >= 3);
    for (const std::string& file : FilesIn(dir.path())) {
      CHECK(fs::path(file).filename().string().starts_with("ab"));
    }
    CHECK(BlocksIn(*store, 255).size() >= 3);
    for (const std::string& file : FilesIn(dir.path())) fs::remove(file);
  }
}

}  // namespace
}  // namespace stagecoach::worker
