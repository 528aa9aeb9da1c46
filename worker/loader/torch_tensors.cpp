#include "worker/loader/torch_tensors.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>
#include <limits>
#include <map>
#include <optional>
#include <string_view>

#include "common/status.h"
#include "worker/loader/pickle_machine.h"
#include "worker/loader/zip_directory.h"

namespace stagecoach::worker {
namespace {

struct ElementType {
  std::string_view storage, dtype;  // torch.FloatStorage, torch.float32
  std::string_view shown;           // safetensors' spelling
  uint64_t bytes;
  std::optional<Code> code;
};
constexpr std::array kElementTypes = {
    ElementType{"Float", "float32", "F32", 4, Code::kF32},
    ElementType{"Half", "float16", "F16", 2, Code::kF16},
    ElementType{"BFloat16", "bfloat16", "BF16", 2, Code::kBF16},
    ElementType{"Double", "float64", "F64", 8, std::nullopt},
    ElementType{"Long", "int64", "I64", 8, std::nullopt},
    ElementType{"Int", "int32", "I32", 4, std::nullopt},
    ElementType{"Short", "int16", "I16", 2, std::nullopt},
    ElementType{"Char", "int8", "I8", 1, std::nullopt},
    ElementType{"Byte", "uint8", "U8", 1, std::nullopt},
    ElementType{"Bool", "bool", "BOOL", 1, std::nullopt},
    ElementType{"Untyped", "", "U8", 1, std::nullopt},
};

const ElementType* FindElementType(std::string_view name) {
  for (const ElementType& type : kElementTypes) {
    if (type.storage == name || type.dtype == name) return &type;
  }
  return nullptr;
}

// Whether the elements are in row-major order. The stride of a dimension of size 1 has no effect.
bool IsRowMajor(const PickledTensor& tensor) {
  int64_t wanted = 1;
  for (size_t i = tensor.shape.size(); i-- > 0;) {
    if (tensor.shape[i] != 1 && tensor.strides[i] != wanted) return false;
    wanted *= tensor.shape[i];  // the caller has checked that the product fits
  }
  return true;
}

bool IsColumnMajor(const PickledTensor& tensor) {
  return tensor.shape.size() == 2 && tensor.strides[0] == 1 && tensor.strides[1] == tensor.shape[0];
}

// Returns an empty string if the tensor is valid. `storage` is its part of the archive.
std::string PlaceTensor(const PickledTensor& tensor, const ZipEntry& storage,
                        StoredTensor* stored) {
  const ElementType* type = FindElementType(tensor.element);
  if (type == nullptr) return fmt::format("has elements of type {}", tensor.element);
  uint64_t n_elements = 1, n_bytes = 0, offset_bytes = 0;
  bool overflow = false;
  for (const int64_t extent : tensor.shape) {
    overflow |= __builtin_mul_overflow(n_elements, static_cast<uint64_t>(extent), &n_elements);
  }
  overflow |= n_elements > static_cast<uint64_t>(std::numeric_limits<int64_t>::max());
  overflow |= __builtin_mul_overflow(n_elements, type->bytes, &n_bytes);
  overflow |=
      __builtin_mul_overflow(static_cast<uint64_t>(tensor.offset), type->bytes, &offset_bytes);
  if (overflow) return "has a shape too large for any file";
  stored->dtype = std::string(type->shown);
  stored->shape = tensor.shape;
  stored->begin = stored->end = storage.begin;
  const bool is_empty = n_elements == 0;
  const bool row_major = is_empty || IsRowMajor(tensor);
  if (!row_major && !IsColumnMajor(tensor)) {
    // This is an error only if the model needs the tensor.
    stored->dtype += fmt::format(" with strides [{}]", fmt::join(tensor.strides, ", "));
    return "";
  }
  const uint64_t storage_bytes = storage.end - storage.begin;
  if (offset_bytes > storage_bytes || n_bytes > storage_bytes - offset_bytes) {
    return fmt::format("needs {} bytes from byte {} of a storage of {}", n_bytes, offset_bytes,
                       storage_bytes);
  }
  stored->code = type->code;
  stored->column_major = !row_major;
  stored->begin = storage.begin + offset_bytes;
  stored->end = stored->begin + n_bytes;
  return "";
}

using ZipEntries = std::map<std::string_view, ZipEntry>;

// Returns "archive/" for an archive with "archive/data.pkl". Empty if there is no such entry.
std::optional<std::string> FindRoot(const ZipEntries& entries) {
  constexpr std::string_view kPickle = "data.pkl";
  for (const auto& [entry, place] : entries) {
    if (!entry.ends_with(kPickle)) continue;
    const std::string_view root = entry.substr(0, entry.size() - kPickle.size());
    if (root.ends_with('/') && root.find('/') == root.size() - 1) return std::string(root);
  }
  return std::nullopt;
}

}  // namespace

absl::StatusOr<StoredTensors> ReadTorchTensors(const std::string& name,
                                               std::span<const std::byte> bytes) {
  const auto error = [&](std::string_view text) {
    return absl::InvalidArgumentError(fmt::format("{}: {}", name, text));
  };
  SC_ASSIGN_OR_RETURN(const ZipEntries entries, ReadZipDirectory(name, bytes));
  const auto content = [&](const ZipEntry& entry) {
    return bytes.subspan(entry.begin, entry.end - entry.begin);
  };
  const std::optional<std::string> root = FindRoot(entries);
  if (!root) return error("a zip archive without data.pkl, so it was not written by torch.save");
  if (const auto order = entries.find(*root + "byteorder"); order != entries.end()) {
    const auto text = content(order->second);
    if (std::string_view(reinterpret_cast<const char*>(text.data()), text.size()) != "little") {
      return absl::UnimplementedError(
          fmt::format("{}: written on a big-endian machine; save it again on another", name));
    }
  }
  SC_ASSIGN_OR_RETURN(const PickledDict dict,
                      ReadPickledTensors(fmt::format("{}: data.pkl", name),
                                         content(entries.at(*root + "data.pkl"))));
  if (dict.tensors.empty() && !dict.others.empty()) {
    const std::string first(dict.others.front().substr(0, 80));
    return error(fmt::format(
        "holds no tensors but \"{}\" and {} others: a training checkpoint? save its state_dict "
        "alone, or use save_pretrained",
        first, dict.others.size() - 1));
  }
  StoredTensors tensors;
  for (const auto& [tensor_name, tensor] : dict.tensors) {
    const auto storage = entries.find(fmt::format("{}data/{}", *root, tensor.key));
    if (storage == entries.end()) {
      return error(
          fmt::format("tensor {}: its storage {} is not in the archive", tensor_name, tensor.key));
    }
    StoredTensor stored;
    const std::string wrong = PlaceTensor(tensor, storage->second, &stored);
    if (!wrong.empty()) return error(fmt::format("tensor {} {}", tensor_name, wrong));
    tensors.insert_or_assign(std::string(tensor_name), std::move(stored));
  }
  return tensors;
}

}  // namespace stagecoach::worker
