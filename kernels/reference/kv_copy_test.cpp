#include <catch2/generators/catch_generators.hpp>

#include "kernels/reference/reference_ops.h"
#include "kernels/testing/kv_copy_checks.h"

namespace stagecoach::kernels {
namespace {

TEST_CASE("Copies of KV blocks") {
  const AttentionConfig config{.n_heads = 2,
                               .n_kv_heads = GENERATE(1, 2),
                               .head_dim = GENERATE(64, 10),
                               .dtype = GENERATE(DType::kF32, DType::kBF16, DType::kF16)};
  CAPTURE(config.n_kv_heads, config.head_dim, DTypeName(config.dtype));
  const auto ops = MakeReferenceOps();
  CheckCopiedSequence(*ops, *ops, config, 0);
  CheckCopiedBytes(*ops, config);
}

}  // namespace
}  // namespace stagecoach::kernels
