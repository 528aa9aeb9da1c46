#include "common/model/kv_support.h"

#include <fmt/format.h>

namespace stagecoach {
namespace {

constexpr int32_t kFp8Multiple = 4;  // GPUs read as many codes at once

}  // namespace

absl::Status CheckKvDType(const ModelSpec& spec, DType kv_dtype) {
  if (kv_dtype != DType::kFp8) return absl::OkStatus();
  if (spec.latent) {
    return absl::UnimplementedError(
        "keys and values in FP8: not for models with latent attention; leave out --kv-dtype");
  }
  for (const KvGroupSpec& group : spec.kv_groups) {
    const int32_t head_dim = group.head_dim > 0 ? group.head_dim : spec.head_dim;
    if (head_dim % kFp8Multiple == 0) continue;
    return absl::UnimplementedError(
        fmt::format("keys and values in FP8: a head size of {} is no multiple of {}; leave out "
                    "--kv-dtype",
                    head_dim, kFp8Multiple));
  }
  return absl::OkStatus();
}

}  // namespace stagecoach
