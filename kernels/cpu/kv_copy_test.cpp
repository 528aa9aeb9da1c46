#include "kernels/cpu/kernel_test_util.h"
#include "kernels/testing/kv_copy_checks.h"

namespace stagecoach::kernels {
namespace {

TEST_CASE("Copies of KV blocks") {
  const AttentionConfig config = GenerateKvCopyConfig();
  CAPTURE(config.n_kv_heads, config.head_dim, DTypeName(config.kv_dtype()));
  const auto ops = MakeCpuOps({.n_threads = 2}), alone = MakeCpuOps({.n_threads = 1});
  const auto reference = MakeReferenceOps();
  CheckCopiedSequence(*ops, *ops, config, 0);
  CheckCopiedSequence(*ops, *alone, config, 0);
  CheckCopiedSequence(*ops, *reference, config, 1e-4);
  CheckCopiedSequence(*reference, *ops, config, 1e-4);
  CheckCopiedBytes(*ops, config);
}

}  // namespace
}  // namespace stagecoach::kernels
