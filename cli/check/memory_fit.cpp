#include "cli/check/memory_fit.h"

#include <fmt/format.h>

#include "common/size.h"

namespace stagecoach::check {

absl::Status CheckMemoryFits(const ModelFacts& facts, uint32_t n_replicas, uint64_t kv_bytes,
                             uint64_t memory_bytes) {
  uint64_t weights_bytes = 0;
  for (const StageFacts& stage : facts.stages) weights_bytes += stage.weights_bytes;
  weights_bytes *= n_replicas;
  const uint64_t all_kv_bytes = kv_bytes * facts.stages.size() * n_replicas;
  if (weights_bytes + all_kv_bytes <= memory_bytes) return absl::OkStatus();
  return absl::InvalidArgumentError(fmt::format(
      "the weights take {}{}, and this machine, or its cgroup, has {} of memory: use a quantized "
      ".gguf file, fewer replicas, or a machine with more memory",
      FormatBytes(weights_bytes),
      all_kv_bytes == 0 ? "" : fmt::format(" and the KV cache {}", FormatBytes(all_kv_bytes)),
      FormatBytes(memory_bytes)));
}

}  // namespace stagecoach::check
