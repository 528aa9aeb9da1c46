// Writes a quantized copy of a checkpoint in the form of compressed-tensors
// (github.com/vllm-project/compressed-tensors), which transformers and vLLM read.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "absl/status/statusor.h"
#include "common/encoding/encoding.h"

namespace stagecoach::quantize {

struct QuantizeOptions {
  std::string model;        // a folder, or org/name in the local Hugging Face cache
  std::string out;          // a folder that does not exist or is empty
  Code code = Code::kInt4;  // kFp8, kInt8 or kInt4
  // A file of weights gets no more than this, unless one tensor is larger.
  uint64_t file_bytes = uint64_t{5} << 30;
};

struct QuantizeReport {
  uint64_t bytes_before = 0, bytes_after = 0;  // of all tensors
  size_t n_quantized = 0, n_kept = 0;          // tensors
};

// Bytes written so far, and in the end.
using QuantizeProgress = std::function<void(uint64_t done, uint64_t total)>;

// Quantizes the matrices of linear layers, as `serve --quantize` does: the same bytes. Copies all
// other tensors, and all files of the folder but weights. Memory: one matrix. INVALID_ARGUMENT: the
// model cannot be served, is quantized already, is no folder of safetensors, or `out` has files.
// UNIMPLEMENTED: the form cannot express the model. UNAVAILABLE: a file cannot be written; what is
// in `out` then is not whole.
absl::StatusOr<QuantizeReport> QuantizeModel(const QuantizeOptions& options,
                                             const QuantizeProgress& progress);

}  // namespace stagecoach::quantize
