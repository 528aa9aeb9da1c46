// For tests: writes .gguf files, valid and invalid ones.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/gguf/gguf_types.h"

namespace stagecoach::gguf {

class TestGguf {
 public:
  template <typename T>
  static std::string Raw(T value) {
    return std::string(reinterpret_cast<const char*>(&value), sizeof(value));
  }
  static std::string Text(std::string_view text) {
    return Raw<uint64_t>(text.size()) + std::string(text);
  }

  // `payload` is written unchanged.
  void Value(std::string_view key, ValueType type, std::string_view payload) {
    metadata_ += Text(key) + Raw(type) + std::string(payload);
    ++n_values_;
  }
  void String(std::string_view key, std::string_view text) {
    Value(key, ValueType::kString, Text(text));
  }
  void Uint(std::string_view key, uint32_t number) { Value(key, ValueType::kUint32, Raw(number)); }
  void Float(std::string_view key, float number) { Value(key, ValueType::kFloat32, Raw(number)); }
  void Bool(std::string_view key, bool flag) { Value(key, ValueType::kBool, Raw<uint8_t>(flag)); }
  void Array(std::string_view key, ValueType type, uint64_t count, std::string_view payload) {
    Value(key, ValueType::kArray, Raw(type) + Raw(count) + std::string(payload));
  }
  // `dims` is innermost first, as in the file.
  void Info(std::string_view name, const std::vector<uint64_t>& dims, uint32_t type,
            uint64_t offset) {
    infos_ += Text(name) + Raw(static_cast<uint32_t>(dims.size()));
    for (const uint64_t dim : dims) infos_ += Raw(dim);
    infos_ += Raw(type) + Raw(offset);
    ++n_tensors_;
  }
  void Tensor(std::string_view name, const std::vector<uint64_t>& dims, TensorType type,
              std::string_view data) {
    data_.resize((data_.size() + 31) / 32 * 32);
    Info(name, dims, static_cast<uint32_t>(type), data_.size());
    data_ += data;
  }

  std::string Bytes(uint32_t version = 3) const {
    std::string bytes = "GGUF" + Raw(version) + Raw(n_tensors_) + Raw(n_values_) + metadata_;
    bytes += infos_;
    bytes.resize((bytes.size() + 31) / 32 * 32);
    return bytes + data_;
  }

 private:
  std::string metadata_, infos_, data_;
  uint64_t n_values_ = 0, n_tensors_ = 0;
};

}  // namespace stagecoach::gguf
