#include "common/gguf/gguf_parser.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <utility>

#include "common/status.h"

namespace stagecoach::gguf {
namespace {

constexpr size_t kMaxKeyBytes = 65535;  // the format's limit
constexpr size_t kMaxNameBytes = 1024;
constexpr uint32_t kMaxDims = 4;  // ggml's limit
constexpr uint64_t kMaxAlignment = 1 << 20;
constexpr size_t kMaxNamedTensors = 8;

// Makes a string from the file printable and short enough for an error message.
std::string Excerpt(std::string_view text) {
  constexpr size_t kMax = 80;
  std::string shown;
  for (const char c : text.substr(0, kMax)) shown += c >= ' ' && c <= '~' ? c : '?';
  return text.size() > kMax ? shown + "..." : shown;
}

bool IsValueType(uint32_t number) { return number <= static_cast<uint32_t>(ValueType::kFloat64); }

}  // namespace

uint64_t ElementBytes(ValueType type) {
  switch (type) {
    case ValueType::kUint8:
    case ValueType::kInt8:
    case ValueType::kBool:
      return 1;
    case ValueType::kUint16:
    case ValueType::kInt16:
      return 2;
    case ValueType::kUint32:
    case ValueType::kInt32:
    case ValueType::kFloat32:
      return 4;
    case ValueType::kUint64:
    case ValueType::kInt64:
    case ValueType::kFloat64:
      return 8;
    case ValueType::kString:
    case ValueType::kArray:
      return 0;
  }
  return 0;
}

absl::Status Parser::Error(std::string_view text) const {
  return absl::InvalidArgumentError(fmt::format("{}: {}", file_->name_, text));
}

absl::Status Parser::CutShort(std::string_view what) const {
  return Error(
      fmt::format("cut short: its {} bytes end within {}; download it again", bytes_.size(), what));
}

template <typename T>
bool Parser::Read(T* out) {
  if (remaining() < sizeof(T)) return false;
  std::memcpy(out, bytes_.data() + at_, sizeof(T));
  at_ += sizeof(T);
  return true;
}

bool Parser::ReadString(std::string_view* out) {
  uint64_t n_bytes = 0;
  if (!Read(&n_bytes) || n_bytes > remaining()) return false;
  *out = {reinterpret_cast<const char*>(bytes_.data() + at_), static_cast<size_t>(n_bytes)};
  at_ += n_bytes;
  return true;
}

absl::Status Parser::Run() {
  uint64_t n_tensors = 0, n_values = 0;
  SC_RETURN_IF_ERROR(ReadHeader(&n_tensors, &n_values));
  // The counts are untrusted. Each iteration consumes bytes of the file or fails, so the loops end.
  for (uint64_t i = 0; i < n_values; ++i) SC_RETURN_IF_ERROR(ReadValue());
  for (uint64_t i = 0; i < n_tensors; ++i) SC_RETURN_IF_ERROR(ReadTensor());
  if (!unsupported_.empty()) {
    const size_t n = unsupported_.size();
    unsupported_.resize(std::min(n, kMaxNamedTensors));
    return absl::UnimplementedError(fmt::format(
        "{}: {} tensors have a type that is not supported: {}{}; supported are F32, F16, BF16, "
        "Q8_0, Q5_0, Q4_0, Q4_K, Q5_K, Q6_K, IQ4_NL and IQ4_XS: take another quantization of the "
        "model, such as Q4_K_M or Q8_0",
        file_->name_, n, fmt::join(unsupported_, ", "), n > kMaxNamedTensors ? ", ..." : ""));
  }
  return PlaceTensors();
}

absl::Status Parser::ReadHeader(uint64_t* n_tensors, uint64_t* n_values) {
  char magic[4];
  uint32_t version = 0;
  if (!Read(&magic) || std::memcmp(magic, "GGUF", 4) != 0) {
    return Error("not a GGUF file (it does not begin with \"GGUF\")");
  }
  if (!Read(&version)) return CutShort("the header");
  const auto unsupported = [&](std::string_view text) {
    return absl::UnimplementedError(fmt::format("{}: {}", file_->name_, text));
  };
  if (version != 0 && (version & 0xffffu) == 0) {
    return unsupported("a big-endian GGUF file; convert the model again for little-endian");
  }
  if (version != 2 && version != 3) {
    return unsupported(fmt::format(
        "GGUF version {} is not supported, only 2 and 3; convert the model again", version));
  }
  if (!Read(n_tensors) || !Read(n_values)) return CutShort("the header");
  return absl::OkStatus();
}

absl::Status Parser::ReadValue() {
  std::string_view key;
  uint32_t type = 0;
  if (!ReadString(&key)) return CutShort("the metadata");
  if (key.empty() || key.size() > kMaxKeyBytes) {
    return Error(fmt::format("a metadata key has {} bytes, which is not possible", key.size()));
  }
  Value value;
  if (!Read(&type)) return CutShort("the metadata");
  if (type == static_cast<uint32_t>(ValueType::kArray)) {
    value.is_array = true;
    if (!Read(&type) || !Read(&value.count)) return CutShort("the metadata");
    if (type == static_cast<uint32_t>(ValueType::kArray)) {
      return Error(fmt::format("key {}: arrays of arrays are not supported", Excerpt(key)));
    }
  }
  if (!IsValueType(type)) {
    return Error(
        fmt::format("key {}: has value type {}, which GGUF does not define", Excerpt(key), type));
  }
  value.type = static_cast<ValueType>(type);
  SC_RETURN_IF_ERROR(ReadElements(key, &value));
  if (!file_->metadata_.emplace(key, value).second) {
    return Error(fmt::format("key {} occurs twice", Excerpt(key)));
  }
  return absl::OkStatus();
}

absl::Status Parser::ReadElements(std::string_view key, Value* value) {
  const uint64_t begin = at_;
  const std::string what = fmt::format("the value of {}", Excerpt(key));
  if (const uint64_t element_bytes = ElementBytes(value->type); element_bytes > 0) {
    if (value->count > remaining() / element_bytes) return CutShort(what);
    at_ += value->count * element_bytes;
  } else {
    std::string_view text;
    for (uint64_t i = 0; i < value->count; ++i) {
      if (!ReadString(&text)) return CutShort(what);
    }
  }
  value->bytes = bytes_.subspan(begin, at_ - begin);
  return absl::OkStatus();
}

absl::Status Parser::ReadTensor() {
  std::string_view name;
  if (!ReadString(&name)) return CutShort("the list of tensors");
  if (name.empty() || name.size() > kMaxNameBytes) {
    return Error(fmt::format("a tensor's name has {} bytes, which is not possible", name.size()));
  }
  TensorInfo info;
  SC_RETURN_IF_ERROR(ReadShape(name, &info));
  uint32_t type = 0;
  if (!Read(&type) || !Read(&info.begin)) return CutShort("the list of tensors");
  info.type = static_cast<TensorType>(type);
  if (!LayoutOf(info.type)) {
    unsupported_.push_back(fmt::format("{} ({})", Excerpt(name), TensorTypeName(info.type)));
  }
  if (!file_->tensors_.emplace(name, std::move(info)).second) {
    return Error(fmt::format("tensor {} occurs twice", Excerpt(name)));
  }
  return absl::OkStatus();
}

absl::Status Parser::ReadShape(std::string_view name, TensorInfo* info) {
  uint32_t n_dims = 0;
  if (!Read(&n_dims)) return CutShort("the list of tensors");
  if (n_dims == 0 || n_dims > kMaxDims) {
    return Error(
        fmt::format("tensor {} has {} dimensions, not 1 to {}", Excerpt(name), n_dims, kMaxDims));
  }
  for (uint32_t i = 0; i < n_dims; ++i) {
    uint64_t extent = 0;
    if (!Read(&extent)) return CutShort("the list of tensors");
    if (extent == 0 || extent > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
      return Error(fmt::format("tensor {} has a dimension of {}", Excerpt(name), extent));
    }
    info->shape.insert(info->shape.begin(), static_cast<int64_t>(extent));
  }
  return absl::OkStatus();
}

absl::Status Parser::PlaceTensors() {
  uint64_t alignment = 32;
  if (file_->Has("general.alignment")) {
    SC_ASSIGN_OR_RETURN(const int64_t value, file_->Int("general.alignment"));
    if (value < 1 || value > static_cast<int64_t>(kMaxAlignment) || (value & (value - 1)) != 0) {
      return Error(fmt::format("key general.alignment: {} is not a power of two up to {}", value,
                               kMaxAlignment));
    }
    alignment = static_cast<uint64_t>(value);
  }
  const uint64_t data_begin = (at_ + alignment - 1) / alignment * alignment;
  const uint64_t data_bytes = bytes_.size() - std::min<uint64_t>(data_begin, bytes_.size());
  std::vector<std::pair<uint64_t, std::string_view>> order;
  for (auto& [name, info] : file_->tensors_) {
    const BlockLayout layout = *LayoutOf(info.type);
    if (info.shape.back() % layout.elements != 0) {
      return Error(fmt::format("tensor {}: rows of {} elements are not whole blocks of {} ({})",
                               Excerpt(name), info.shape.back(), layout.elements,
                               TensorTypeName(info.type)));
    }
    uint64_t n_bytes = static_cast<uint64_t>(info.shape.back()) / layout.elements;
    bool overflow = __builtin_mul_overflow(n_bytes, layout.bytes, &n_bytes);
    for (size_t i = 0; i + 1 < info.shape.size(); ++i) {
      overflow |= __builtin_mul_overflow(n_bytes, static_cast<uint64_t>(info.shape[i]), &n_bytes);
    }
    if (overflow) {
      return Error(fmt::format("tensor {} has a shape too large for any file", Excerpt(name)));
    }
    if (info.begin % alignment != 0) {
      return Error(
          fmt::format("tensor {} begins at {}, which is not a multiple of the alignment {}",
                      Excerpt(name), info.begin, alignment));
    }
    if (info.begin > data_bytes || n_bytes > data_bytes - info.begin) {
      return CutShort(fmt::format("tensor {}", Excerpt(name)));
    }
    info.begin += data_begin;
    info.end = info.begin + n_bytes;
    order.emplace_back(info.begin, name);
  }
  std::sort(order.begin(), order.end());
  for (size_t i = 1; i < order.size(); ++i) {
    if (file_->tensors_.at(order[i - 1].second).end > order[i].first) {
      return Error(fmt::format("tensors {} and {} overlap", Excerpt(order[i - 1].second),
                               Excerpt(order[i].second)));
    }
  }
  return absl::OkStatus();
}

}  // namespace stagecoach::gguf
