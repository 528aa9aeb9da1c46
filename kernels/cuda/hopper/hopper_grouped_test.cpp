// GEMMs of many matrices on Hopper with every tile height: against the reference, and bit for bit
// with each other.
#include "kernels/cuda/hopper/hopper_grouped.h"

#include <algorithm>
#include <catch2/generators/catch_generators.hpp>
#include <cstring>
#include <numeric>

#include "kernels/cuda/device/cuda_api.h"
#include "kernels/cuda/experts/expert_rows.h"
#include "kernels/cuda/testing/device_values.h"
#include "kernels/cuda/testing/ops_stream.h"

namespace stagecoach::kernels {
namespace {

struct Shape {
  int32_t rows, cols;           // of a matrix
  std::vector<int32_t> counts;  // rows of x for each matrix
};

void CheckEveryTileHeight(Ops& reference, Ops& ops, const cuda::Stream& stream, const Shape& shape,
                          DType dtype, bool gated) {
  const auto n_matrices = static_cast<int32_t>(shape.counts.size());
  const int32_t n_rows = std::accumulate(shape.counts.begin(), shape.counts.end(), 0);
  const int32_t n_outputs = gated ? shape.rows / 2 : shape.rows;
  std::vector<Matrix> matrices;
  std::vector<int32_t> experts;
  const std::vector<float> input =
      Rounded(RandomFloats(static_cast<size_t>(n_rows) * shape.cols, 2), dtype);
  std::vector<float> theirs;
  for (int32_t e = 0; e < n_matrices; ++e) {
    const int32_t n = shape.counts[e];
    const std::vector<float> values =
        RandomFloats(static_cast<size_t>(shape.rows) * shape.cols, static_cast<uint32_t>(10 + e),
                     1 / std::sqrt(static_cast<float>(shape.cols)));
    matrices.push_back(PackedMatrix(ops, shape.rows, shape.cols, dtype, values));
    if (n == 0) continue;
    const Matrix their_w = PackedMatrix(reference, shape.rows, shape.cols, dtype, values);
    const auto from = input.begin() + static_cast<int64_t>(experts.size()) * shape.cols;
    const Values their_x(reference, std::vector<float>(from, from + int64_t{n} * shape.cols));
    const Values product(reference, std::vector<float>(static_cast<size_t>(n) * shape.rows));
    reference.Gemm({.x = their_x, .w = &their_w, .y = product, .n_rows = n});
    const Values activated(reference, std::vector<float>(static_cast<size_t>(n) * n_outputs));
    if (gated) {
      reference.Activate({.x = product,
                          .out = activated,
                          .n_rows = n,
                          .width = n_outputs,
                          .kind = Activation::kSilu,
                          .gated = true});
    }
    const std::vector<float> results = (gated ? activated : product).Get();
    theirs.insert(theirs.end(), results.begin(), results.end());
    experts.insert(experts.end(), static_cast<size_t>(n), e);
  }
  if (!cuda::HasHopperGrouped(stream, matrices, gated)) return;

  // The rows are sorted already, so their grouping only makes the tiles.
  const Ids chosen(ops, experts), order(ops, experts), places(ops, experts);
  const Ids counts(
      ops, std::vector<int32_t>(static_cast<size_t>(cuda::GroupingParts(n_rows) * n_matrices)));
  const int32_t max_tiles = n_rows / 16 + n_matrices + 1;
  const Buffer tiles = *ops.Allocate(static_cast<size_t>(max_tiles) * sizeof(cuda::RowTile));
  const Ids n_tiles(ops, {0});
  std::vector<unsigned char> host_maps(matrices.size() * cuda::kTensorMapBytes);
  REQUIRE(cuda::MakeMatrixMaps(matrices, host_maps.data()) == cudaSuccess);
  const Buffer maps = *ops.Allocate(host_maps.size());
  ops.Upload(host_maps.data(), maps.data.get(), host_maps.size());
  const Values x(ops, input, dtype);
  const size_t n = static_cast<size_t>(n_rows) * n_outputs;
  constexpr size_t kBeyond = 4096;  // values after y that a kernel must not write
  std::vector<float> first;
  for (const int32_t tile_rows : cuda::kHopperGroupedTileRows) {
    INFO(DTypeName(dtype) << " gated " << gated << " " << shape.rows << " x " << shape.cols
                          << " tile rows " << tile_rows);
    REQUIRE(cuda::GroupPairs(stream, {.experts = chosen.data(),
                                      .n_pairs = n_rows,
                                      .n_experts = n_matrices,
                                      .tile_rows = tile_rows,
                                      .n_tiles = n_tiles.data(),
                                      .groups = nullptr,
                                      .tiles = tiles.As<cuda::RowTile>(),
                                      .counts = counts.data(),
                                      .order = order.data(),
                                      .places = places.data()}) == cudaSuccess);
    std::vector<float> before(n, NAN);
    before.resize(n + kBeyond, 7);
    const Values y(ops, before, dtype);
    REQUIRE(ops.Synchronize().ok());  // the tiles are complete
    REQUIRE(cuda::HopperGroupedGemm(stream, {.x = x,
                                             .maps = maps.data.get(),
                                             .n_rows = n_rows,
                                             .rows = shape.rows,
                                             .cols = shape.cols,
                                             .tiles = tiles.As<cuda::RowTile>(),
                                             .n_tiles = n_tiles.data(),
                                             .max_tiles = max_tiles,
                                             .tile_rows = tile_rows,
                                             .y = y,
                                             .gated = gated,
                                             .kind = Activation::kSilu}) == cudaSuccess);
    std::vector<float> results = y.Get();
    CHECK(std::all_of(results.begin() + static_cast<int64_t>(n), results.end(),
                      [](float value) { return value == 7; }));
    results.resize(n);
    CHECK(WorstError(results, theirs) < 2 * Step(dtype));
    if (first.empty()) first = results;
    CHECK(std::memcmp(results.data(), first.data(), sizeof(float) * n) == 0);
  }
}

TEST_CASE("HopperGroupedGemm: every tile height gives the reference's results and the same bits") {
  const DType dtype = GENERATE(DType::kBF16, DType::kF16);
  const auto reference = MakeReferenceOps(), ops = NewCudaOps();
  for (const Shape& shape :
       {Shape{16, 64, {1}}, Shape{144, 192, {0, 3, 0, 65, 17, 130, 0}},
        Shape{528, 640, {150, 1, 0, 64}}, Shape{272, 1536, {16, 5, 128, 70}},
        Shape{144, 64, {16, 2300, 5}}, Shape{256, 64, {40, 40, 40, 40, 40, 40, 40, 40}}}) {
    for (const bool gated : {false, true}) {
      for (const int32_t n_multiprocessors : {2, 1000}) {
        CheckEveryTileHeight(*reference, *ops, StreamOf(*ops, n_multiprocessors), shape, dtype,
                             gated);
      }
    }
  }
}

}  // namespace
}  // namespace stagecoach::kernels
