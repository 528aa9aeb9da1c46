// Where a stage's weights come from: the checkpoint's files, or made up.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "common/dtype.h"
#include "common/gguf/gguf_types.h"

namespace stagecoach::worker {

// A tensor that the model needs: [rows, cols], or [cols] where is_vector (then rows is 1).
struct TensorRequest {
  std::string name;  // "model.layers.3.self_attn.q_proj.weight"
  int64_t rows = 1;
  int64_t cols = 0;
  bool is_vector = false;
  // Dummy values are uniform in [center - spread, center + spread].
  float dummy_center = 0;
  float dummy_spread = 0;
  bool transposed = false;  // the checkpoint has it as [cols, rows], as GPT-2's Conv1D does
};

// Row-major [n_rows, cols] host memory.
struct RowsView {
  const void* data;
  DType dtype;
};

// One thread at a time.
class WeightSource {
 public:
  virtual ~WeightSource() = default;

  // The dtype in which tensor `request` (an index into the requests) is stored, or best kept where
  // its rows are computed (quantized or merged). Rows() may give another.
  virtual DType dtype(size_t request) const = 0;
  // Some of its rows; valid until the next call, which tells the system that they are no longer
  // needed.
  virtual RowsView Rows(size_t request, int64_t first_row, int64_t n_rows) = 0;

  // How StoredRows() has them; nothing: only Rows() has them, since they are computed.
  virtual std::optional<gguf::TensorType> encoding(size_t /*request*/) const {
    return std::nullopt;
  }
  // As Rows(), in the bytes of the file. REQUIRES: encoding(request)
  virtual const void* StoredRows(size_t /*request*/, int64_t /*first_row*/, int64_t /*n_rows*/) {
    return nullptr;
  }
};

struct CheckpointOptions {
  CheckpointOptions(std::string model, std::string adapter = "")
      : model_path(std::move(model)), adapter_dir(std::move(adapter)) {}

  // A folder (safetensors or PyTorch .bin, one file or sharded with an index), or a .gguf file.
  std::string model_path;
  // peft's folder of a LoRA adapter that is merged into the weights; empty: none.
  std::string adapter_dir;
};

// Of an index only the files that hold a requested tensor are opened. Names are accepted with and
// without the prefixes that published checkpoints vary, and as the text part of a multimodal one.
// INVALID_ARGUMENT lists every tensor that is missing, of another shape, or of a dtype that weights
// cannot be read from, and every part of the adapter that does not fit; NOT_FOUND says which files
// there are instead. Nothing is allocated before the verdict but what the headers say.
absl::StatusOr<std::unique_ptr<WeightSource>> OpenCheckpoint(
    const CheckpointOptions& options, std::span<const TensorRequest> requests);

// Values that depend on the tensor's name and the element's index alone.
std::unique_ptr<WeightSource> MakeDummyWeights(DType dtype,
                                               std::span<const TensorRequest> requests);

}  // namespace stagecoach::worker
