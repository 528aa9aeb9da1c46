#include "kernels/cuda/step/hopper_works.h"

#include <catch2/catch_test_macros.hpp>

namespace stagecoach::kernels::cuda {
namespace {

constexpr int64_t kCapacity = 65536;

Stream H200() {
  Stream stream;
  stream.n_multiprocessors = stream.n_all_multiprocessors = 132;
  stream.is_hopper = true;
  return stream;
}

StepLimits Limits() {
  return {.max_tokens = 8192,
          .max_slots = 64,
          .max_blocks = 20000,
          .groups = {{0}},
          .n_heads = 32,
          .n_kv_heads = 8,
          .head_dim = 128,
          .act_dtype = DType::kBF16,
          .kv_dtype = DType::kBF16};
}

HopperWorks Chosen(const std::vector<StepSeq>& seqs, int32_t n_kv_heads = 8) {
  HopperWorks works;
  StepLimits limits = Limits();
  limits.n_kv_heads = n_kv_heads;
  works.Choose(
      H200(), limits,
      {.tile_rows = 128, .capacity = kCapacity, .others_packed = true, .other_tile_rows = 128},
      seqs);
  return works;
}

TEST_CASE("Hopper's dense prefill takes prompts, but not few rows after a long context") {
  CHECK(Chosen({{0, 0, 8192}}).Has(0));
  CHECK(Chosen({{0, 0, 2048}}).Has(0));
  for (const int32_t n_tokens : {2, 16, 63, 64, 128}) {
    CHECK_FALSE(Chosen({{0, 30000, n_tokens}}).Has(0));
  }
  CHECK(Chosen({{0, 30000, 1024}}).Has(0));
  const HopperWorks mixed = Chosen({{0, 0, 4096}, {1, 30000, 20}, {2, 500, 1}});
  CHECK(mixed.Has(0));
  CHECK_FALSE(mixed.Has(1));
  CHECK_FALSE(mixed.Has(2));
}

TEST_CASE("Hopper's dense prefill takes many short prompts") {
  std::vector<StepSeq> seqs;
  for (int32_t s = 0; s < 64; ++s) seqs.push_back({s, 0, 128});
  for (const int32_t n_kv_heads : {8, 16, 32}) {
    const HopperWorks works = Chosen(seqs, n_kv_heads);
    for (size_t s = 0; s < seqs.size(); ++s) CHECK(works.Has(s));
  }
}

TEST_CASE("Hopper's dense prefill splits the heads into passes if not all keys fit") {
  const std::vector<int32_t> starts = {0, 4096, 8192};
  struct Case {
    std::vector<StepSeq> seqs;
    int32_t n_passes;
  };
  for (const Case& wanted :
       {Case{{{0, 40000, 4096}}, 1}, Case{{{0, 40000, 4096}, {1, 40000, 4096}}, 2},
        Case{{{0, 126976, 4096}}, 2}, Case{{{0, 131072, 4096}}, 4}}) {
    HopperWorks works = Chosen(wanted.seqs);
    REQUIRE(works.Has(0));
    works.Plan(H200(), Limits(), wanted.seqs, starts);
    const HopperPlan plan = works.At(H200(), works.arrays().data());
    CHECK(plan.n_passes == wanted.n_passes);
    CHECK(plan.gather.n_blocks * int64_t{kBlockTokens} <= kCapacity * plan.n_passes);
    CHECK(plan.n_works == static_cast<int32_t>(wanted.seqs.size()) * 32 * 32 / wanted.n_passes);
    for (int32_t i = 0; i < plan.n_works; ++i) REQUIRE(plan.heads[i] < 32 / wanted.n_passes);
    CHECK(works.arrays().size() <=
          HopperWorks::MaxArrays(H200(), Limits(), {.tile_rows = 128, .capacity = kCapacity}));
  }
}

}  // namespace
}  // namespace stagecoach::kernels::cuda
