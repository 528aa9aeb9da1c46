#include "kernels/cuda/device/l2_sides.h"

#include <bit>
#include <random>
#include <set>
#include <string>

#include "kernels/cuda/l2/l2_measure.h"
#include "kernels/cuda/testing/device_values.h"

namespace stagecoach::kernels::cuda {
namespace {

// Latencies of SMs whose partitions alternate in pairs of ids, as on an H200.
std::vector<uint16_t> Latencies(int n_multiprocessors, uint32_t mask, int far) {
  std::mt19937 random(3);
  std::vector<uint16_t> latencies;
  for (int m = 0; m < n_multiprocessors; ++m) {
    for (uint32_t c = 0; c < kPageChunks; ++c) {
      const int side = std::popcount(c & mask) % 2;
      latencies.push_back(static_cast<uint16_t>((side == m / 2 % 2 ? 270 : 270 + far) + m % 5 * 8 +
                                                static_cast<int>(random() % 50)));
    }
  }
  latencies.resize(kMaxSidedMultiprocessors * kPageChunks);
  return latencies;
}

TEST_CASE("L2: latencies give the side of each SM and of each chunk of a page") {
  std::vector<uint16_t> latencies = Latencies(132, 0xab, 200);
  L2Sides sides = SidesOf(latencies, 132);
  REQUIRE(sides.known());
  CHECK(sides.chunk_mask == 0xab);
  for (int32_t m = 0; m < 132; ++m) CHECK(sides.SideOf(m) == m / 2 % 2);
  CHECK(sides.SideOf(kMaxSidedMultiprocessors) == 0);
  // SM ids that do not exist, as on a GPU that is divided among several users.
  std::fill_n(latencies.begin(), 6 * kPageChunks, uint16_t{0});
  sides = SidesOf(latencies, 126);
  REQUIRE(sides.known());
  for (int32_t m = 6; m < 132; ++m) CHECK(sides.SideOf(m) == (m / 2 + 1) % 2);
}

TEST_CASE("L2: unclear or contradictory latencies give no sides") {
  CHECK_FALSE(SidesOf(Latencies(132, 0xab, 0), 132).known());
  // Neighbouring chunks are in the same partition.
  CHECK_FALSE(SidesOf(Latencies(132, 0xaa, 200), 132).known());
  // All SMs in one partition; an SM that was not measured; a chunk that does not fit.
  CHECK_FALSE(SidesOf(Latencies(2, 0xab, 200), 2).known());
  CHECK_FALSE(SidesOf(Latencies(131, 0xab, 200), 132).known());
  std::vector<uint16_t> latencies = Latencies(132, 0xab, 200);
  for (size_t m = 0; m < 132; ++m) {
    uint16_t& one = latencies[m * kPageChunks + 100];
    one = one > 400 ? 270 : 480;
  }
  CHECK_FALSE(SidesOf(latencies, 132).known());
}

TEST_CASE("L2: heads have sides if their rows are chunks or whole parts of chunks") {
  CHECK(ChunkRowsLog2(DType::kBF16, 8, 128) == 0);
  CHECK(ChunkRowsLog2(DType::kF32, 8, 64) == 0);
  CHECK(ChunkRowsLog2(DType::kF16, 4, 64) == 1);
  CHECK(ChunkRowsLog2(DType::kF16, 2, 64) == -1);
  CHECK(ChunkRowsLog2(DType::kBF16, 3, 128) == -1);
  CHECK(ChunkRowsLog2(DType::kBF16, 8, 96) == -1);
  CHECK(ChunkRowsLog2(DType::kBF16, 8, 256) == -1);
  for (const int32_t log2 : {0, 1, 2}) {
    std::set<int32_t> heads;
    for (int32_t side = 0; side < 2; ++side) {
      for (int32_t i = 0; i < 8; ++i) {
        const int32_t head = HeadOfSide(side, i, log2);
        CHECK((head >> log2) % 2 == side);
        heads.insert(head);
      }
    }
    CHECK(heads.size() == 16);
    CHECK(*heads.rbegin() == 15);
  }
}

// On a real GPU, the free memory has a coarser granularity and includes other processes.
#ifdef STAGECOACH_EMULATED_CUDA
TEST_CASE("L2: freed KV memory leaves nothing allocated") {
  const auto ops = NewCudaOps();
  const auto with_one = [&] {
    const Buffer kv = *ops->AllocateKv(kPageBytes);
    return ops->Memory().free_bytes;
  };
  const uint64_t free_bytes = with_one();
  {
    std::vector<Buffer> at_once;
    for (size_t i = 1; i <= 8; ++i) at_once.push_back(*ops->AllocateKv(i * kPageBytes));
  }
  CHECK(with_one() == free_bytes);
}
#endif

// The notes about a KV cache begin with the sides.
std::string MeasuredSides(Ops& ops) {
  const Buffer memory = *ops.Allocate(kPageBytes);
  return ops.AdoptKv(memory, "")->substr(0, sizeof(L2Sides));
}

TEST_CASE("L2: every measurement gives the same sides") {
  const std::string sides = MeasuredSides(*NewCudaOps());
  const bool known = sides != std::string(sizeof(L2Sides), '\0');
#ifdef STAGECOACH_EMULATED_CUDA
  REQUIRE(known);
#endif
  if (!known) SKIP("this GPU has no sides");
  CHECK(MeasuredSides(*NewCudaOps()) == sides);
}

}  // namespace
}  // namespace stagecoach::kernels::cuda
