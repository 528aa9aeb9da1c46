#include "worker/loader/gguf_tensors.h"

#include <string_view>

#include "common/gguf/gguf_file.h"
#include "common/status.h"

namespace stagecoach::worker {
namespace {

bool IsPart(std::string_view name, std::string_view part) { return name.find(part) != name.npos; }

// The converter permutes q and k of the "llama" architecture, because ggml rotates neighbouring
// pairs of a head instead of its two halves.
int32_t InterleavedHead(std::string_view name, int64_t rows, int64_t n_heads, int64_t n_kv_heads) {
  int64_t heads = 0;
  if (IsPart(name, ".attn_q.")) heads = n_heads;
  if (IsPart(name, ".attn_k.")) heads = n_kv_heads;
  if (heads <= 0 || rows % heads != 0 || rows / heads % 2 != 0) return 0;
  constexpr int64_t kMaxHead = 1 << 16;
  return rows / heads <= kMaxHead ? static_cast<int32_t>(rows / heads) : 0;
}

}  // namespace

absl::StatusOr<StoredTensors> ReadGgufTensors(const std::string& name,
                                              std::span<const std::byte> bytes) {
  SC_ASSIGN_OR_RETURN(const auto file, gguf::GgufFile::Parse(name, bytes));
  const bool is_llama = file->String("general.architecture").value_or("") == "llama";
  const int64_t n_heads = file->Int("llama.attention.head_count").value_or(0);
  const int64_t n_kv_heads = file->Int("llama.attention.head_count_kv").value_or(n_heads);
  StoredTensors tensors;
  for (const auto& [tensor_name, info] : file->tensors()) {
    StoredTensor tensor;
    tensor.dtype = std::string(gguf::TensorTypeName(info.type));
    tensor.code = gguf::CodeOf(info.type);
    tensor.shape = info.shape;
    tensor.begin = info.begin;
    tensor.end = info.end;
    if (is_llama) {
      tensor.interleaved_head =
          InterleavedHead(tensor_name, info.shape.front(), n_heads, n_kv_heads);
    }
    tensors.emplace(tensor_name, std::move(tensor));
  }
  return tensors;
}

}  // namespace stagecoach::worker
