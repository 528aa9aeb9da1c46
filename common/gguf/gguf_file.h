// One memory-mapped .gguf file: metadata by key and where each tensor lies. Versions 2 and 3,
// little-endian. Everything is checked before it is used: counts and lengths against the bytes that
// are there, tensors against the file's end and each other.
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

// A metadata value as it lies in the file: one element, or an array's.
struct Value {
  ValueType type = ValueType::kUint8;  // of the elements of an array
  bool is_array = false;
  uint64_t count = 1;
  std::span<const std::byte> bytes;  // of all elements; strings: each behind its 8-byte length
};

struct TensorInfo {
  // Outermost dimension first, as everywhere else in this project (the file has it last).
  std::vector<int64_t> shape;
  TensorType type = TensorType::kF32;
  uint64_t begin = 0, end = 0;  // bytes of the file
};

// Immutable, thread-safe. Views that it hands out live as long as it does.
class GgufFile {
 public:
  // INVALID_ARGUMENT names the file, the key or tensor and what is wrong; UNIMPLEMENTED: of a
  // version, byte order or tensor type that is not supported, with the tensors; NOT_FOUND: no such
  // file.
  static absl::StatusOr<std::shared_ptr<const GgufFile>> Open(const std::string& path);
  // The same over `bytes`, which must outlive the result; `name` stands in messages.
  static absl::StatusOr<std::shared_ptr<const GgufFile>> Parse(const std::string& name,
                                                               std::span<const std::byte> bytes);

  const std::string& path() const { return name_; }
  std::span<const std::byte> bytes() const { return bytes_; }
  const MappedFile* mapped() const { return mapped_.get(); }  // null after Parse()

  const std::map<std::string_view, Value>& metadata() const { return metadata_; }
  const std::map<std::string_view, TensorInfo>& tensors() const { return tensors_; }

  bool Has(std::string_view key) const { return metadata_.contains(key); }
  bool IsArray(std::string_view key) const;

  // NOT_FOUND: no such key. INVALID_ARGUMENT: of another type, or not representable. Int() takes
  // every integer type, Float() every number; Ints() and Floats() likewise, of arrays.
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
