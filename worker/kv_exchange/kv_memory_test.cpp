#include "worker/kv_exchange/kv_memory.h"

#include <catch2/catch_test_macros.hpp>
#include <cstring>
#include <random>
#include <utility>
#include <vector>

namespace stagecoach::worker {
namespace {

kernels::Buffer Bytes(size_t n) {
  return {.data = std::shared_ptr<void>(new unsigned char[n],
                                        [](void* p) { delete[] static_cast<unsigned char*>(p); }),
          .bytes = n};
}

TEST_CASE("KV memory: a run has the wanted length, or is the longest that is free") {
  KvMemory memory(Bytes(1000), 100);
  CHECK(memory.n_total() == 10);
  KvMemory::Run a = memory.TakeUpTo(4);
  KvMemory::Run b = memory.TakeUpTo(3);
  CHECK(a.n_blocks() == 4);
  CHECK(b.n_blocks() == 3);
  CHECK(b.data() == a.data() + 400);
  a = {};
  KvMemory::Run c = memory.TakeUpTo(9);
  CHECK(c.n_blocks() == 4);  // the other free run has 3
  KvMemory::Run d = memory.TakeUpTo(9);
  CHECK(d.n_blocks() == 3);
  CHECK(memory.TakeUpTo(1).n_blocks() == 0);
  CHECK(memory.n_free() == 0);
  b = {};
  c = {};
  d = {};
  CHECK(memory.TakeUpTo(99).n_blocks() == 10);  // free runs that touch are one
}

TEST_CASE("KV memory: runs never overlap") {
  constexpr uint64_t kBlock = 3;
  KvMemory memory(Bytes(64 * kBlock), kBlock);
  std::mt19937 random(7);
  std::vector<std::pair<KvMemory::Run, unsigned char>> runs;
  for (int i = 0; i < 2000; ++i) {
    if (random() % 2 == 0) {
      KvMemory::Run run = memory.TakeUpTo(1 + random() % 20);
      const auto mark = static_cast<unsigned char>(random());
      if (run.n_blocks() == 0) continue;
      std::memset(run.data(), mark, run.n_blocks() * kBlock);
      runs.emplace_back(std::move(run), mark);
    } else if (!runs.empty()) {
      const size_t at = random() % runs.size();
      const auto& [run, mark] = runs[at];
      for (size_t k = 0; k < run.n_blocks() * kBlock; ++k) REQUIRE(run.data()[k] == mark);
      runs[at] = std::move(runs.back());
      runs.pop_back();
    }
  }
  runs.clear();
  CHECK(memory.n_free() == 64);
}

}  // namespace
}  // namespace stagecoach::worker
