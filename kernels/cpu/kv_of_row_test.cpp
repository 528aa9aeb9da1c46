// RopeAppend and Attention with the layouts of rows that KvOfRow names, and with normed values.
#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/generators/catch_generators_range.hpp>
#include <cmath>

#include "kernels/cpu/kernel_test_util.h"

namespace stagecoach::kernels {
namespace {

constexpr int32_t kHeads = 4, kKvHeads = 2, kHeadDim = 40, kTokens = 21;
constexpr int32_t kBlocks = 2;

// A sequence of kTokens rows on one device.
class Sequence {
 public:
  explicit Sequence(Ops& ops, DType kv_dtype = DType::kF32)
      : ops_(ops),
        kv_dtype_(kv_dtype),
        k_(*ops.AllocateKv(KvBlockBytes(kv_dtype, kKvHeads, kHeadDim, 1) * kBlocks)),
        v_(*ops.AllocateKv(KvBlockBytes(kv_dtype, kKvHeads, kHeadDim, 1) * kBlocks)),
        step_(*ops.NewStepInputs(
            {.max_tokens = kTokens, .max_slots = 1, .max_blocks = kBlocks, .groups = {{0}}})) {
    const std::vector<StepSeq> seqs = {{.slot = 0, .position = 0, .n_tokens = kTokens}};
    const std::vector<NewBlock> blocks = {{0, 0, 0, 1}, {0, 0, 1, 0}};
    ops.BuildStep({.seqs = seqs, .new_blocks = blocks, .n_tokens = kTokens}, step_.get());
  }

  // Appends the rows and returns what Attention gives for them.
  std::vector<float> Run(std::vector<float> rows, KvOfRow kv_of_row, bool norms_v) {
    const KvLayer kv{k_.data.get(), v_.data.get(), kv_dtype_};
    const RopeTable rope{cos_.data(), sin_.data(), kHeadDim};
    ops_.RopeAppend({.qkv = rows.data(),
                     .positions = step_->positions,
                     .kv_slots = step_->groups[0].kv_slots,
                     .rope = &rope,
                     .q_norm = norm_.data(),
                     .k_norm = norm_.data(),
                     .norm_kind = NormKind::kRms,
                     .norm_eps = 1e-6f,
                     .kv = kv,
                     .n_tokens = kTokens,
                     .n_heads = kHeads,
                     .n_kv_heads = kKvHeads,
                     .head_dim = kHeadDim,
                     .norms_v = norms_v,
                     .kv_of_row = kv_of_row});
    std::vector<float> out(size_t{kTokens} * kHeads * kHeadDim);
    ops_.Attention({.qkv = rows.data(),
                    .kv = kv,
                    .step = step_.get(),
                    .group = 0,
                    .out = out.data(),
                    .n_heads = kHeads,
                    .n_kv_heads = kKvHeads,
                    .head_dim = kHeadDim,
                    .scale = 0.3f,
                    .kv_of_row = kv_of_row});
    REQUIRE(ops_.Synchronize().ok());
    return out;
  }

 private:
  Ops& ops_;
  const DType kv_dtype_;
  const std::vector<float> norm_ = RandomFloats(kHeadDim, 5, 2);
  const std::vector<float> cos_ = RandomFloats(size_t{kTokens} * kHeadDim / 2, 6);
  const std::vector<float> sin_ = RandomFloats(size_t{kTokens} * kHeadDim / 2, 7);
  Buffer k_, v_;
  std::unique_ptr<StepInputs> step_;
};

// Row by row: the first n_heads heads of `from`, which has as many heads as `stride` says.
std::vector<float> Heads(const std::vector<float>& from, size_t stride, size_t n_heads) {
  std::vector<float> to;
  for (size_t t = 0; t < kTokens; ++t) {
    const auto row = from.begin() + static_cast<std::ptrdiff_t>(t * stride * kHeadDim);
    to.insert(to.end(), row, row + static_cast<std::ptrdiff_t>(n_heads * kHeadDim));
  }
  return to;
}

TEST_CASE("normed values, keys as values and rows without keys equal the reference") {
  const std::string target = GENERATE(from_range(RunnableTargets()));
  const bool norms_v = GENERATE(false, true);
  auto ops = MakeCpuOpsFor(target, 2);
  auto reference = MakeReferenceOps();
  const DType kv_dtype = GENERATE(DType::kF32, DType::kFp8);
  // A difference in the last bit of a normed number may round it to the neighbouring code.
  const double tolerance = kv_dtype == DType::kF32 ? 2e-5 : 2e-2;
  Sequence mine(*ops, kv_dtype), theirs(*reference, kv_dtype);
  constexpr size_t kAll = kHeads + 2 * kKvHeads;
  const std::vector<float> rows = RandomFloats(kTokens * kAll * kHeadDim, 1, 2);
  const std::vector<float> without_v = Heads(rows, kAll, kHeads + kKvHeads);
  const std::vector<float> queries = Heads(rows, kAll, kHeads);
  std::vector<float> repeated = rows;  // values are the keys
  for (size_t t = 0; t < kTokens; ++t) {
    float* const k = repeated.data() + (t * kAll + kHeads) * kHeadDim;
    constexpr size_t kKeys = size_t{kKvHeads} * kHeadDim;
    std::copy_n(k, kKeys, k + kKeys);
  }
  const std::vector<float> both = mine.Run(rows, KvOfRow::kKeysAndValues, norms_v);
  CHECK(WorstError(both, theirs.Run(rows, KvOfRow::kKeysAndValues, norms_v)) < tolerance);
  const std::vector<float> keys = mine.Run(without_v, KvOfRow::kKeysAsValues, norms_v);
  CHECK(WorstError(keys, theirs.Run(without_v, KvOfRow::kKeysAsValues, norms_v)) < tolerance);
  CHECK(keys == mine.Run(repeated, KvOfRow::kKeysAndValues, norms_v));
  // The cache stays as it is.
  CHECK(keys == mine.Run(queries, KvOfRow::kNone, norms_v));
  CHECK(theirs.Run(repeated, KvOfRow::kKeysAndValues, norms_v) ==
        theirs.Run(queries, KvOfRow::kNone, norms_v));
}

TEST_CASE("a norm of values makes their mean square 1") {
  auto ops = MakeCpuOps({.n_threads = 1});
  Sequence sequence(*ops);
  constexpr size_t kAll = kHeads + 2 * kKvHeads;
  const std::vector<float> out = sequence.Run(RandomFloats(kTokens * kAll * kHeadDim, 1, 9),
                                              KvOfRow::kKeysAndValues, /*norms_v=*/true);
  // The first row sees only its own value.
  double square = 0;
  for (size_t i = 0; i < kHeadDim; ++i) square += double{out[i]} * out[i];
  CHECK(std::abs(square / kHeadDim - 1) < 1e-4);
}

}  // namespace
}  // namespace stagecoach::kernels
