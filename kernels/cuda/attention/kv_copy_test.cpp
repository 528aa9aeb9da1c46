#include "kernels/cuda/testing/device_values.h"
#include "kernels/testing/kv_copy_checks.h"

namespace stagecoach::kernels {
namespace {

// The batch-invariant mode swaps no rows of the cache; the other mode does for 4 KV heads and most
// of these sizes.
TEST_CASE("Copies of KV blocks") {
  const AttentionConfig config = GenerateKvCopyConfig();
  if (config.fp8_cache && config.head_dim % 4 != 0) return;  // the kernels read words of codes
  CAPTURE(config.n_kv_heads, config.head_dim, DTypeName(config.kv_dtype()));
  const double tolerance = config.dtype == DType::kF32 ? 1e-4 : 2 * Step(config.dtype);
  const auto ops = NewCudaOps(), invariant = NewCudaOps(/*batch_invariant=*/true);
  const auto reference = MakeReferenceOps();
  CheckCopiedSequence(*ops, *ops, config, 0);
  CheckCopiedSequence(*ops, *invariant, config, tolerance);
  CheckCopiedSequence(*invariant, *ops, config, tolerance);
  CheckCopiedSequence(*ops, *reference, config, tolerance);
  CheckCopiedSequence(*reference, *ops, config, tolerance);
  CheckCopiedBytes(*ops, config);
}

}  // namespace
}  // namespace stagecoach::kernels
