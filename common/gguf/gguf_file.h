// A memory-mapped .gguf file: metadata by key, and the position of each tensor. Reads versions 2
// and 3, little-endian. Everything is checked before use: counts and lengths against the bytes in
// the file, tensors against the file's end and against each other.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "common/gguf/gguf_types.h"
#include "common/mapped_file.h"

namespace stagecoach::gguf {

// A metadata value in its file encoding: one element or an array.
struct Value {
  ValueType type = ValueType::kUint8;  // of the elements, if it is an array
  bool is_array = false;
  uint64_t count = 1;
  std::span<const std::byte> bytes;  // all elements; each string follows its 8-byte length
};

struct TensorInfo {
  // Outermost dimension first, as everywhere in this project. The file stores it last.
  std::vector<int64_t> shape;
  TensorType type = TensorType::kF32;
  uint64_t begin = 0, end = 0;  // byte range in the file
};

// Immutable and thread-safe. Views that it returns live as long as the object.
class GgufFile {
 public:
  // INVALID_ARGUMENT names the file, the key or tensor, and the problem. UNIMPLEMENTED names an
  // unsupported version, byte order or tensor type, and the tensors. NOT_FOUND if the file does not
  // exist.
  static absl::StatusOr<std::shared_ptr<const GgufFile>> Open(const std::string& path);
  // The same for `bytes`, which must outlive the result. Error messages use `name`.
  static absl::StatusOr<std::shared_ptr<const GgufFile>> Parse(const std::string& name,
                                                               std::span<const std::byte> bytes);

  const std::string& path() const { return name_; }
  std::span<const std::byte> bytes() const { return bytes_; }
  const MappedFile* mapped() const { return mapped_.get(); }  // null after Parse()

  const std::map<std::string_view, Value>& metadata() const { return metadata_; }
  const std::map<std::string_view, TensorInfo>& tensors() const { return tensors_; }

  bool Has(std::string_view key) const { return metadata_.contains(key); }
  bool IsArray(std::string_view key) const;

  // NOT_FOUND: no such key. INVALID_ARGUMENT: the value has another type or does not fit the
  // result. Int() accepts every integer type, Float() every number type; Ints() and Floats() do the
  // same for arrays.
  absl::StatusOr<std::string_view> String(std::string_view key) const;
  absl::StatusOr<int64_t> Int(std::string_view key) const;
  absl::StatusOr<double> Float(std::string_view key) const;
  absl::StatusOr<bool> Bool(std::string_view key) const;
  absl::StatusOr<std::vector<std::string_view>> Strings(std::string_view key) const;
  absl::StatusOr<std::vector<int64_t>> Ints(std::string_view key) const;
  absl::StatusOr<std::vector<float>> Floats(std::string_view key) const;
  absl::StatusOr<std::vector<bool>> Bools(std::string_view key) const;

 private:
  friend class Parser;
  GgufFile() = default;

  absl::StatusOr<const Value*> Find(std::string_view key, bool is_array) const;
  absl::Status WrongType(std::string_view key, const Value& value, std::string_view wanted) const;

  std::string name_;
  std::shared_ptr<const MappedFile> mapped_;
  std::span<const std::byte> bytes_;
  std::map<std::string_view, Value> metadata_;
  std::map<std::string_view, TensorInfo> tensors_;
};

}  // namespace stagecoach::gguf
