// Writes a .safetensors file (format: safetensors.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <fstream>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace stagecoach::worker {

struct TensorToWrite {
  std::string name;
  std::string dtype;  // as safetensors spells it: "BF16"
  std::vector<int64_t> shape;
  uint64_t n_bytes = 0;
};

// Not thread-safe.
class SafetensorsWriter {
 public:
  // Writes the header. The data of all tensors follow in this order.
  static absl::StatusOr<SafetensorsWriter> Create(const std::string& path,
                                                  std::span<const TensorToWrite> tensors);

  void Append(std::span<const std::byte> bytes);
  // UNAVAILABLE: the file is not whole, for example because the disk is full.
  absl::Status Close();

 private:
  SafetensorsWriter(std::string path, std::ofstream file, uint64_t n_bytes)
      : path_(std::move(path)), file_(std::move(file)), n_bytes_left_(n_bytes) {}

  std::string path_;
  std::ofstream file_;
  uint64_t n_bytes_left_;
};

}  // namespace stagecoach::worker
