// The source of a stage's weights: a checkpoint's files, or generated dummy values.
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
#include "common/encoding/encoding.h"
#include "common/model/quantization.h"

namespace stagecoach::worker {

// The place of a request in a tensor that holds the same weight of all experts, one after another.
// The expert's rows belong to several requests (gate and up), in turns or one request after
// another.
struct ExpertPlace {
  int32_t expert = 0;
  int32_t n_experts = 0;  // 0: the tensor is the request's alone
  int32_t turn = 0, n_turns = 1;
  bool in_turns = true;

  // Row r of a request with `rows` rows is row first_row(rows) + r * step() of the expert's.
  int64_t first_row(int64_t rows) const { return in_turns ? turn : turn * rows; }
  int64_t step() const { return in_turns ? n_turns : 1; }
};

// A tensor that the model needs: [rows, cols], or [cols] if is_vector (then rows is 1).
struct TensorRequest {
  std::string name;  // "model.layers.3.self_attn.q_proj.weight"
  int64_t rows = 1;
  int64_t cols = 0;
  bool is_vector = false;
  // Dummy values are uniform in [dummy_center - dummy_spread, dummy_center + dummy_spread].
  float dummy_center = 0;
  float dummy_spread = 0;
  bool transposed = false;         // stored as [cols, rows] in the checkpoint, as in GPT-2's Conv1D
  bool is_linear = false;          // of a linear layer's matrix that quantize_to applies to
  bool is_split = false;           // its rows go to several matrices, which are never quantized
  Quantization quantization = {};  // of the checkpoint; a matrix may still be plain
  ExpertPlace place = {};
  std::vector<int64_t> shape = {};  // in the checkpoint; empty: as above
  int64_t first_row = 0;            // in that shape, whose dimensions but the last count as rows
  // If the checkpoint lacks `name`, it may have the rows in this tensor: [its first dimension,
  // rows, cols], whose dimensions but the last count as rows. With fused_place it is [n_experts,
  // cols, all rows of an expert]. Empty: it may not.
  std::string fused_name = {};
  std::vector<int64_t> fused_shape = {};
  int64_t fused_first_row = 0;
  ExpertPlace fused_place = {};
  // Not 0: the checkpoint has the rows (or elements) of each head of this size in another order,
  // see InterleavedRow.
  int32_t interleaved_head = 0;

  bool is_stacked() const { return place.n_experts > 0; }
};

// The encoding of a quantized matrix, if config.json alone tells it. Dummy weights have it.
std::optional<Encoding> ImpliedEncoding(const TensorRequest& request);

// Host memory, row-major [n_rows, cols].
struct RowsView {
  const void* data;
  DType dtype;
};

// Use from one thread at a time.
class WeightSource {
 public:
  virtual ~WeightSource() = default;

  // The dtype in which tensor `request` (an index into the requests) is stored. If its rows are
  // computed (quantized or merged), the dtype to keep it in. Rows() may return another dtype.
  virtual DType dtype(size_t request) const = 0;
  // Returns some rows of a tensor. They are valid until the next call, which tells the kernel that
  // their pages are no longer needed.
  virtual RowsView Rows(size_t request, int64_t first_row, int64_t n_rows) = 0;

  // The encoding of StoredRows(). Empty if the rows are computed, so that only Rows() has them.
  virtual std::optional<Encoding> encoding(size_t /*request*/) const { return std::nullopt; }
  // As Rows(), but in that encoding (common/encoding/rows.h). REQUIRES: encoding(request)
  virtual const void* StoredRows(size_t /*request*/, int64_t /*first_row*/, int64_t /*n_rows*/) {
    return nullptr;
  }
  // The model's input of each input of StoredRows(), [cols]. Empty unless the encoding is permuted.
  virtual std::span<const int32_t> InputOrder(size_t /*request*/) const { return {}; }
};

struct CheckpointOptions {
  // A path alone is a checkpoint. NOLINTNEXTLINE(google-explicit-constructor)
  CheckpointOptions(std::string model, std::string adapter = "",
                    std::optional<Code> quantize = std::nullopt)
      : model_path(std::move(model)), adapter_dir(std::move(adapter)), quantize_to(quantize) {}

  // A folder (safetensors or PyTorch .bin, one file or shards with an index), or a .gguf file.
  std::string model_path;
  // peft's folder of a LoRA adapter to merge into the weights. Empty: none.
  std::string adapter_dir;
  // Quantizes linear layers to this grouped code while they are read (common/encoding/
  // encode_rows.h).
  std::optional<Code> quantize_to;
};

// With an index, opens only the files that hold a requested tensor. Accepts names with and without
// the prefixes that vary between published checkpoints, and names of the text part of a multimodal
// one. INVALID_ARGUMENT lists every tensor that is missing, has a wrong shape or has an unreadable
// dtype, and every part of the adapter that does not fit. NOT_FOUND lists the files present
// instead. Before the checks end, only the headers take memory.
absl::StatusOr<std::unique_ptr<WeightSource>> OpenCheckpoint(
    const CheckpointOptions& options, std::span<const TensorRequest> requests);

// Dummy values depend only on the tensor's name and the element's index.
std::unique_ptr<WeightSource> MakeDummyWeights(DType dtype,
                                               std::span<const TensorRequest> requests);

// `source` with the rows of requests with `interleaved_head` in the model's order.
std::unique_ptr<WeightSource> ReorderHeads(std::unique_ptr<WeightSource> source,
                                           std::span<const TensorRequest> requests);

// `source` with the matrices of linear layers quantized, as CheckpointOptions::quantize_to says.
// Rows() still returns the values of before. INVALID_ARGUMENT: one of them is quantized already.
absl::StatusOr<std::unique_ptr<WeightSource>> QuantizeLinears(
    std::unique_ptr<WeightSource> source, Code code, std::span<const TensorRequest> requests);

}  // namespace stagecoach::worker
