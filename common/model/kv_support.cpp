#include "common/model/kv_support.h"

namespace stagecoach {

absl::Status CheckKvDType(const ModelSpec& spec, DType kv_dtype) {
  if (kv_dtype != DType::kFp8 || !spec.latent) return absl::OkStatus();
  return absl::UnimplementedError(
      "keys and values in FP8: not for models with latent attention; leave out --kv-dtype");
}

}  // namespace stagecoach
