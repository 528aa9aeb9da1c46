#include "kernels/reference/reference_ops.h"
#include "kernels/testing/kv_copy_checks.h"

namespace stagecoach::kernels {
namespace {

TEST_CASE("Copies of KV blocks") {
  const AttentionConfig config = GenerateKvCopyConfig();
  CAPTURE(config.n_kv_heads, config.head_dim, DTypeName(config.kv_dtype()));
  const auto ops = MakeReferenceOps();
  CheckCopiedSequence(*ops, *ops, config, 0);
  CheckCopiedBytes(*ops, config);
}

}  // namespace
}  // namespace stagecoach::kernels
