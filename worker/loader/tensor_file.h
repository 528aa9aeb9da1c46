// One weights file of any format, mapped: what tensors it holds and how each one's elements lie.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/dtype.h"
#include "common/gguf/gguf_types.h"
#include "common/mapped_file.h"

namespace stagecoach::worker {

// How elements are stored: plain, or in blocks that are dequantized when they are read. GGUF's list
// has all that the other formats have too.
using Encoding = gguf::TensorType;

using gguf::PlainDType;

struct StoredTensor {
  std::string dtype;                 // as the file spells it: "BF16", "Q4_K"
  std::optional<Encoding> encoding;  // nothing: weights cannot be read from this dtype
  std::vector<int64_t> shape;
  uint64_t begin = 0, end = 0;  // bytes of the file
  // Two dimensions whose elements lie column by column.
  bool column_major = false;
  // Rows (or elements of a vector) of each head of this size are in the order 0, h/2, 1, h/2 + 1,
  // ... of the model's own; 0: in the model's order. GGUF's Llama files have q and k so.
  int32_t interleaved_head = 0;
};

using StoredTensors = std::map<std::string, StoredTensor, std::less<>>;

enum class FileFormat : uint8_t { kSafetensors, kTorch, kGguf };

struct TensorFile {
  std::shared_ptr<const MappedFile> mapped;
  FileFormat format = FileFormat::kSafetensors;
  StoredTensors tensors;
};

// The format is told by the content. INVALID_ARGUMENT names the file, the tensor and what is wrong;
// UNIMPLEMENTED: a variant of the format that cannot be read, with what to do; NOT_FOUND: no such
// file. Touches no tensor's data.
absl::StatusOr<std::shared_ptr<const TensorFile>> OpenTensorFile(const std::string& path);

}  // namespace stagecoach::worker
