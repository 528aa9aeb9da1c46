#include "common/gguf/gguf_file.h"

#include <fmt/format.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <optional>
#include <type_traits>
#include <utility>

#include "common/gguf/gguf_parser.h"
#include "common/status.h"

namespace stagecoach::gguf {
namespace {

template <typename T>
T Load(const std::byte* at) {
  T value;
  std::memcpy(&value, at, sizeof(T));
  return value;
}

// Calls `use` with element `index` in its own type. Returns false for strings.
template <typename Use>
bool VisitNumber(const Value& value, uint64_t index, Use&& use) {
  const std::byte* at = value.bytes.data() + index * ElementBytes(value.type);
  switch (value.type) {
    case ValueType::kUint8:
      return use(Load<uint8_t>(at));
    case ValueType::kInt8:
      return use(Load<int8_t>(at));
    case ValueType::kUint16:
      return use(Load<uint16_t>(at));
    case ValueType::kInt16:
      return use(Load<int16_t>(at));
    case ValueType::kUint32:
      return use(Load<uint32_t>(at));
    case ValueType::kInt32:
      return use(Load<int32_t>(at));
    case ValueType::kUint64:
      return use(Load<uint64_t>(at));
    case ValueType::kInt64:
      return use(Load<int64_t>(at));
    case ValueType::kFloat32:
      return use(Load<float>(at));
    case ValueType::kFloat64:
      return use(Load<double>(at));
    case ValueType::kBool:
    case ValueType::kString:
    case ValueType::kArray:
      return false;
  }
  return false;
}

bool AsInt(const Value& value, uint64_t index, int64_t* out) {
  return VisitNumber(value, index, [&](auto number) {
    if constexpr (std::is_floating_point_v<decltype(number)>) {
      return false;
    } else {
      *out = static_cast<int64_t>(number);
      return std::in_range<int64_t>(number);
    }
  });
}

bool AsFloat(const Value& value, uint64_t index, double* out) {
  return VisitNumber(value, index, [&](auto number) {
    *out = static_cast<double>(number);
    return true;
  });
}

std::string_view TypeName(ValueType type) {
  switch (type) {
    case ValueType::kFloat32:
    case ValueType::kFloat64:
      return "float";
    case ValueType::kBool:
      return "bool";
    case ValueType::kString:
      return "string";
    default:
      return "integer";
  }
}

}  // namespace

absl::StatusOr<std::shared_ptr<const GgufFile>> GgufFile::Open(const std::string& path) {
  SC_ASSIGN_OR_RETURN(std::shared_ptr<const MappedFile> mapped, MappedFile::Open(path));
  const std::shared_ptr<GgufFile> file(new GgufFile());
  file->name_ = path;
  file->bytes_ = mapped->bytes();
  file->mapped_ = std::move(mapped);
  SC_RETURN_IF_ERROR(Parser(file.get()).Run());
  return file;
}

absl::StatusOr<std::shared_ptr<const GgufFile>> GgufFile::Parse(const std::string& name,
                                                                std::span<const std::byte> bytes) {
  const std::shared_ptr<GgufFile> file(new GgufFile());
  file->name_ = name;
  file->bytes_ = bytes;
  SC_RETURN_IF_ERROR(Parser(file.get()).Run());
  return file;
}

bool GgufFile::IsArray(std::string_view key) const {
  const auto found = metadata_.find(key);
  return found != metadata_.end() && found->second.is_array;
}

absl::StatusOr<const Value*> GgufFile::Find(std::string_view key, bool is_array) const {
  const auto found = metadata_.find(key);
  if (found == metadata_.end()) {
    return absl::NotFoundError(
        fmt::format("{}: has no metadata key {}; convert the model again", name_, key));
  }
  if (found->second.is_array != is_array) {
    return WrongType(key, found->second, is_array ? "an array" : "a single value");
  }
  return &found->second;
}

absl::Status GgufFile::WrongType(std::string_view key, const Value& value,
                                 std::string_view wanted) const {
  return absl::InvalidArgumentError(fmt::format("{}: key {} is of type {}{}, not {}", name_, key,
                                                TypeName(value.type),
                                                value.is_array ? " array" : "", wanted));
}

absl::StatusOr<std::string_view> GgufFile::String(std::string_view key) const {
  SC_ASSIGN_OR_RETURN(const Value* value, Find(key, /*is_array=*/false));
  if (value->type != ValueType::kString) return WrongType(key, *value, "string");
  return std::string_view(reinterpret_cast<const char*>(value->bytes.data()) + sizeof(uint64_t),
                          value->bytes.size() - sizeof(uint64_t));
}

absl::StatusOr<int64_t> GgufFile::Int(std::string_view key) const {
  SC_ASSIGN_OR_RETURN(const Value* value, Find(key, /*is_array=*/false));
  int64_t number = 0;
  if (!AsInt(*value, 0, &number)) return WrongType(key, *value, "an integer of 63 bits");
  return number;
}

absl::StatusOr<double> GgufFile::Float(std::string_view key) const {
  SC_ASSIGN_OR_RETURN(const Value* value, Find(key, /*is_array=*/false));
  double number = 0;
  if (!AsFloat(*value, 0, &number)) return WrongType(key, *value, "a number");
  return number;
}

absl::StatusOr<bool> GgufFile::Bool(std::string_view key) const {
  SC_ASSIGN_OR_RETURN(const Value* value, Find(key, /*is_array=*/false));
  if (value->type != ValueType::kBool) return WrongType(key, *value, "bool");
  return value->bytes.front() != std::byte{0};
}

absl::StatusOr<std::vector<std::string_view>> GgufFile::Strings(std::string_view key) const {
  SC_ASSIGN_OR_RETURN(const Value* value, Find(key, /*is_array=*/true));
  if (value->type != ValueType::kString) return WrongType(key, *value, "string array");
  std::vector<std::string_view> strings;
  strings.reserve(value->count);  // no overflow: each string took at least 8 bytes of the file
  const std::byte* at = value->bytes.data();
  for (uint64_t i = 0; i < value->count; ++i) {
    const uint64_t n_bytes = Load<uint64_t>(at);
    strings.emplace_back(reinterpret_cast<const char*>(at) + sizeof(uint64_t), n_bytes);
    at += sizeof(uint64_t) + n_bytes;
  }
  return strings;
}

absl::StatusOr<std::vector<int64_t>> GgufFile::Ints(std::string_view key) const {
  SC_ASSIGN_OR_RETURN(const Value* value, Find(key, /*is_array=*/true));
  std::vector<int64_t> numbers(value->count);
  for (uint64_t i = 0; i < value->count; ++i) {
    if (!AsInt(*value, i, &numbers[i])) return WrongType(key, *value, "integers of 63 bits");
  }
  return numbers;
}

absl::StatusOr<std::vector<float>> GgufFile::Floats(std::string_view key) const {
  SC_ASSIGN_OR_RETURN(const Value* value, Find(key, /*is_array=*/true));
  std::vector<float> numbers(value->count);
  for (uint64_t i = 0; i < value->count; ++i) {
    double number = 0;
    if (!AsFloat(*value, i, &number)) return WrongType(key, *value, "numbers");
    if (std::isfinite(number) && std::abs(number) > std::numeric_limits<float>::max()) {
      return WrongType(key, *value, "numbers within float's range");
    }
    numbers[i] = static_cast<float>(number);
  }
  return numbers;
}

absl::StatusOr<std::vector<bool>> GgufFile::Bools(std::string_view key) const {
  SC_ASSIGN_OR_RETURN(const Value* value, Find(key, /*is_array=*/true));
  if (value->type != ValueType::kBool) return WrongType(key, *value, "bool array");
  std::vector<bool> flags;
  for (const std::byte flag : value->bytes) flags.push_back(flag != std::byte{0});
  return flags;
}

}  // namespace stagecoach::gguf
