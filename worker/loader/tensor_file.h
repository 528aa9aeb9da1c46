// A mapped weights file of any format: its tensors and the layout of their elements.
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
#include "common/encoding/encoding.h"
#include "common/mapped_file.h"

namespace stagecoach::worker {

struct StoredTensor {
  std::string dtype;         // as spelled in the file: "BF16", "Q4_K"
  std::optional<Code> code;  // empty: this dtype alone cannot be read as weights
  std::vector<int64_t> shape;
  uint64_t begin = 0, end = 0;  // byte range in the file
  // Two dimensions, stored column by column.
  bool column_major = false;
  // If not 0, the rows (or elements of a vector) of each head of this size are stored in another
  // order, see InterleavedRow. GGUF's Llama files store q and k this way. 0: the model's order.
  int32_t interleaved_head = 0;
};

using StoredTensors = std::map<std::string, StoredTensor, std::less<>>;

enum class FileFormat : uint8_t { kSafetensors, kTorch, kGguf };

struct TensorFile {
  std::shared_ptr<const MappedFile> mapped;
  FileFormat format = FileFormat::kSafetensors;
  StoredTensors tensors;
};

// Detects the format from the content. INVALID_ARGUMENT names the file, the tensor and the problem.
// UNIMPLEMENTED: a variant of the format that cannot be read, and what to do. NOT_FOUND: the file
// does not exist. Reads no tensor data.
absl::StatusOr<std::shared_ptr<const TensorFile>> OpenTensorFile(const std::string& path);

}  // namespace stagecoach::worker
