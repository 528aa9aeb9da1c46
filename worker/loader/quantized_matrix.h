// Matrices that a checkpoint stores as codes and scales in tensors of their own.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/encoding/encoding.h"
#include "worker/loader/checkpoint_files.h"
#include "worker/loader/tensor_problems.h"
#include "worker/loader/weight_source.h"

namespace stagecoach::worker {

// A tensor in a mapped file.
struct MappedTensor {
  std::shared_ptr<const TensorFile> file;
  const StoredTensor* stored = nullptr;

  const uint8_t* data() const {
    return reinterpret_cast<const uint8_t*>(file->mapped->bytes().data()) + stored->begin;
  }
  const std::vector<int64_t>& shape() const { return stored->shape; }
  // REQUIRES: the dtype is F32, BF16 or F16.
  DType dtype() const {
    return PlainDType(stored->code.value_or(Code::kF32)).value_or(DType::kF32);
  }
};

class QuantizedMatrix {
 public:
  virtual ~QuantizedMatrix() = default;
  const Encoding& encoding() const { return encoding_; }
  // The model's input of each stored input. Empty unless the encoding is permuted.
  std::span<const int32_t> order() const { return order_; }
  // Writes rows in the form of common/encoding/rows.h.
  virtual void Rows(size_t first_row, size_t n_rows, uint8_t* to) const = 0;
  // Tells the kernel that the pages of the matrix are no longer needed.
  void Release() const;

  std::vector<MappedTensor> tensors;  // all that the matrix reads

 protected:
  Encoding encoding_;
  std::vector<int32_t> order_;
};

// The tensors that belong to the matrix of a request: "...q_proj.weight" has "...q_proj.scales". A
// suffix that begins with "_" follows the name without a dot; an empty one is the name itself.
class LayerTensors {
 public:
  LayerTensors(CheckpointFiles& files, const TensorRequest& request, TensorProblems* problems)
      : rows(static_cast<size_t>(request.rows)),
        cols(static_cast<size_t>(request.cols)),
        quantization(request.quantization),
        place(request.place),
        shape(request.shape),
        first_row(static_cast<size_t>(request.first_row)),
        files_(files),
        weight_(request.name),
        problems_(problems) {}

  const size_t rows, cols;  // of the matrix
  const Quantization quantization;
  const ExpertPlace place;
  const std::vector<int64_t> shape;  // like first_row, as in TensorRequest
  const size_t first_row;

  // Absent without a problem if the checkpoint has no such tensor.
  std::optional<MappedTensor> Find(std::string_view suffix);
  // The same, but a missing tensor, another dtype (all of them, as safetensors spells them) or
  // another shape is a problem. An empty shape: any.
  std::optional<MappedTensor> Need(std::string_view suffix,
                                   std::initializer_list<std::string_view> dtypes,
                                   std::initializer_list<size_t> shape);
  void Problem(std::string_view suffix, std::string_view text);
  const std::vector<MappedTensor>& found() const { return found_; }

 private:
  std::string NameWith(std::string_view suffix) const;

  CheckpointFiles& files_;
  const std::string weight_;
  TensorProblems* problems_;
  std::vector<MappedTensor> found_;
};

// Each returns null after a problem.
using OpenQuantized = std::unique_ptr<QuantizedMatrix>(LayerTensors& tensors);
OpenQuantized OpenScaledMatrix, OpenScaledExpert, OpenGptqMatrix, OpenAwqMatrix, OpenPackedMatrix,
    OpenMxFp4Matrix, OpenPackedMxFp4Matrix, OpenNvFp4Matrix, OpenModelOptNvFp4Matrix;

// Whether the checkpoint has the matrix of this request in one of these formats, and not in a plain
// dtype.
bool HasQuantized(const CheckpointFiles& files, const TensorRequest& request);
// Null after a problem. REQUIRES: HasQuantized(files, request)
std::unique_ptr<QuantizedMatrix> OpenQuantizedMatrix(CheckpointFiles& files,
                                                     const TensorRequest& request,
                                                     TensorProblems* problems);

// Names, as in the files, of all tensors that belong to the request's matrix.
std::set<std::string> NamesOfMatrix(CheckpointFiles& files, const TensorRequest& request);

// The order of inputs in which those of a group are consecutive. groups: int32 [cols], the group of
// each input. Empty if the inputs have such an order. Absent, with a problem, if a group has not
// `size` inputs.
std::optional<std::vector<int32_t>> OrderByGroup(const uint8_t* groups, size_t size,
                                                 std::string_view suffix, LayerTensors& tensors);

// Code `i` of `to` is code order[i] of `from`: 4-bit codes, two a byte, or bytes.
void ReorderCodes(const uint8_t* from, std::span<const int32_t> order, size_t bits, uint8_t* to);

}  // namespace stagecoach::worker
