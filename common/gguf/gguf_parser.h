// Fills a GgufFile from its bytes.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "common/gguf/gguf_file.h"

namespace stagecoach::gguf {

// Returns 0 for kString and kArray, whose elements vary in size, and for unknown type numbers.
uint64_t ElementBytes(ValueType type);

class Parser {
 public:
  explicit Parser(GgufFile* file) : file_(file), bytes_(file->bytes_) {}
  absl::Status Run();

 private:
  absl::Status Error(std::string_view text) const;
  absl::Status CutShort(std::string_view what) const;

  absl::Status ReadHeader(uint64_t* n_tensors, uint64_t* n_values);
  absl::Status ReadValue();
  absl::Status ReadElements(std::string_view key, Value* value);
  absl::Status ReadTensor();
  absl::Status ReadShape(std::string_view name, TensorInfo* info);
  absl::Status PlaceTensors();

  // False if the file ends before the value.
  template <typename T>
  bool Read(T* out);
  bool ReadString(std::string_view* out);
  uint64_t remaining() const { return bytes_.size() - at_; }

  GgufFile* file_;
  std::span<const std::byte> bytes_;
  uint64_t at_ = 0;
  std::vector<std::string> unsupported_;  // "blk.0.ffn_up.weight (Q3_K)"
};

}  // namespace stagecoach::gguf
