#include "worker/loader/quantized_matrix.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <numeric>

#include "common/float_convert.h"

namespace stagecoach::worker {
namespace {

constexpr std::string_view kWeight = ".weight";

struct Format {
  QuantMethod method;
  std::string_view suffix;  // of a tensor that the formats below of the method have not
  OpenQuantized* open;
};

constexpr std::array kFormats = {
    Format{QuantMethod::kFp8, "weight_scale", OpenScaledMatrix},
    Format{QuantMethod::kFp8, "weight_scale_inv", OpenScaledMatrix},
    Format{QuantMethod::kFp8, "_scale_inv", OpenScaledExpert},
    Format{QuantMethod::kGptq, "qweight", OpenGptqMatrix},
    Format{QuantMethod::kAwq, "qweight", OpenAwqMatrix},
    Format{QuantMethod::kCompressedTensors, "weight_global_scale", OpenNvFp4Matrix},
    Format{QuantMethod::kCompressedTensors, "weight_packed", OpenPackedMatrix},
    Format{QuantMethod::kCompressedTensors, "weight_scale", OpenScaledMatrix},
    Format{QuantMethod::kMxFp4, "_blocks", OpenMxFp4Matrix},
    Format{QuantMethod::kModelOpt, "weight_scale_2", OpenModelOptNvFp4Matrix},
    Format{QuantMethod::kModelOpt, "weight_scale", OpenScaledMatrix},
};

// Tensors of a layer that hold its weights, and scales of activations, which are not quantized
// here.
constexpr std::array<std::string_view, 21> kSuffixes = {"weight_scale",
                                                        "weight_scale_inv",
                                                        "qweight",
                                                        "qzeros",
                                                        "scales",
                                                        "g_idx",
                                                        "weight_packed",
                                                        "weight_shape",
                                                        "weight_zero_point",
                                                        "weight_g_idx",
                                                        "input_scale",
                                                        "input_zero_point",
                                                        "activation_scale",
                                                        "input_scale_ub",
                                                        "_blocks",
                                                        "_scales",
                                                        "_scale_inv",
                                                        "_activation_scale",
                                                        "weight_scale_2",
                                                        "weight_global_scale",
                                                        "input_global_scale"};

// "a.b" for "a.b.weight".
std::string_view StemOf(std::string_view weight) {
  return weight.ends_with(kWeight) ? weight.substr(0, weight.size() - kWeight.size()) : weight;
}

std::string Sibling(std::string_view weight, std::string_view suffix) {
  const bool has_dot = !suffix.empty() && !suffix.starts_with('_');
  return fmt::format("{}{}{}", StemOf(weight), has_dot ? "." : "", suffix);
}

// Null if the checkpoint has the matrix in a plain dtype, or not at all.
const Format* FindFormat(const CheckpointFiles& files, const TensorRequest& request) {
  if (request.is_vector) return nullptr;
  for (const Format& format : kFormats) {
    if (format.method == request.quantization.method &&
        !files.NameOf(Sibling(request.name, format.suffix)).empty()) {
      return &format;
    }
  }
  return nullptr;
}

bool IsAllZero(const CheckpointFiles::Found& found) {
  if (found.entry == nullptr || !found.entry->code) return false;
  const std::optional<DType> dtype = PlainDType(*found.entry->code);
  if (!dtype) return false;
  const std::byte* const data = found.file->mapped->bytes().data() + found.entry->begin;
  const size_t n = (found.entry->end - found.entry->begin) / DTypeBytes(*dtype);
  for (size_t i = 0; i < n; ++i) {
    if (LoadElement(data, *dtype, i) != 0) return false;
  }
  return true;
}

}  // namespace

std::string LayerTensors::NameWith(std::string_view suffix) const {
  return Sibling(weight_, suffix);
}

std::optional<MappedTensor> LayerTensors::Find(std::string_view suffix) {
  CheckpointFiles::Found found = files_.Find(NameWith(suffix));
  if (found.name.empty()) return std::nullopt;
  if (!found.file_error.ok()) {
    problems_->Add(found.name, std::string(found.file_error.message()));
    return std::nullopt;
  }
  if (found.entry == nullptr) {
    problems_->Add(found.name, "in the index, but not in the file that the index names");
    return std::nullopt;
  }
  found_.push_back({std::move(found.file), found.entry});
  return found_.back();
}

std::optional<MappedTensor> LayerTensors::Need(std::string_view suffix,
                                               std::initializer_list<std::string_view> dtypes,
                                               std::initializer_list<size_t> shape) {
  if (files_.NameOf(NameWith(suffix)).empty()) {
    Problem(suffix, "missing");
    return std::nullopt;
  }
  std::optional<MappedTensor> tensor = Find(suffix);
  if (!tensor) return tensor;
  if (std::find(dtypes.begin(), dtypes.end(), tensor->stored->dtype) == dtypes.end()) {
    Problem(suffix, fmt::format("has dtype {}, but this format has {}", tensor->stored->dtype,
                                fmt::join(dtypes, " or ")));
    return std::nullopt;
  }
  if (shape.size() > 0 &&
      !std::equal(shape.begin(), shape.end(), tensor->shape().begin(), tensor->shape().end(),
                  [](size_t wanted, int64_t is) { return wanted == static_cast<size_t>(is); })) {
    Problem(suffix, fmt::format("has shape [{}], but config.json needs [{}]",
                                fmt::join(tensor->shape(), ", "), fmt::join(shape, ", ")));
    return std::nullopt;
  }
  return tensor;
}

void LayerTensors::Problem(std::string_view suffix, std::string_view text) {
  const std::string name = files_.NameOf(NameWith(suffix));
  problems_->Add(name.empty() ? NameWith(suffix) : name, text);
}

bool HasQuantized(const CheckpointFiles& files, const TensorRequest& request) {
  return FindFormat(files, request) != nullptr;
}

std::unique_ptr<QuantizedMatrix> OpenQuantizedMatrix(CheckpointFiles& files,
                                                     const TensorRequest& request,
                                                     TensorProblems* problems) {
  LayerTensors tensors(files, request, problems);
  if (tensors.Find("pre_quant_scale")) {
    tensors.Problem("pre_quant_scale",
                    "scales the inputs of a layer (as in NVFP4_AWQ), which is not supported");
    return nullptr;
  }
  std::unique_ptr<QuantizedMatrix> matrix = FindFormat(files, request)->open(tensors);
  if (matrix) matrix->tensors = tensors.found();
  return matrix;
}

void QuantizedMatrix::Release() const {
  for (const MappedTensor& tensor : tensors) {
    tensor.file->mapped->DontNeed(tensor.stored->begin, tensor.stored->end);
  }
}

std::set<std::string> NamesOfMatrix(CheckpointFiles& files, const TensorRequest& request) {
  std::set<std::string> names;
  if (request.is_vector || request.quantization.method == QuantMethod::kNone) return names;
  // The first expert's are the same tensors.
  if (request.place.expert > 0 || request.first_row > 0) return names;
  for (const std::string_view suffix : kSuffixes) {
    std::string name = files.NameOf(Sibling(request.name, suffix));
    if (name.empty()) continue;
    // A bias that nothing reads is one of this layer, whatever its weight is called.
    names.insert(name.substr(0, name.size() - suffix.size()) + "weight");
    names.insert(std::move(name));
  }
  // Some writers of GPTQ files store a bias of zeros for every layer.
  if (request.quantization.method == QuantMethod::kGptq && !names.empty()) {
    const CheckpointFiles::Found bias = files.Find(Sibling(request.name, "bias"));
    if (IsAllZero(bias)) names.insert(bias.name);
  }
  return names;
}

std::optional<std::vector<int32_t>> OrderByGroup(const uint8_t* groups, size_t size,
                                                 std::string_view suffix, LayerTensors& tensors) {
  std::vector<int32_t> of_input(tensors.cols);
  std::memcpy(of_input.data(), groups, tensors.cols * sizeof(int32_t));
  std::vector<int32_t> order(tensors.cols);
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
    return of_input[static_cast<size_t>(a)] < of_input[static_cast<size_t>(b)];
  });
  for (size_t i = 0; i < order.size(); ++i) {
    if (of_input[static_cast<size_t>(order[i])] != static_cast<int32_t>(i / size)) {
      tensors.Problem(suffix, fmt::format("has groups of another size than {}", size));
      return std::nullopt;
    }
  }
  if (std::is_sorted(order.begin(), order.end())) order.clear();
  return order;
}

void ReorderCodes(const uint8_t* from, std::span<const int32_t> order, size_t bits, uint8_t* to) {
  for (size_t i = 0; i < order.size(); ++i) {
    const size_t source = static_cast<size_t>(order[i]);
    if (bits == 8) {
      to[i] = from[source];
      continue;
    }
    const int code = from[source / 2] >> (source % 2 * 4) & 15;
    to[i / 2] = static_cast<uint8_t>(i % 2 == 0 ? code : to[i / 2] | code << 4);
  }
}

}  // namespace stagecoach::worker
