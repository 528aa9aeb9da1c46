#include "worker/loader/safetensors.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/json.hpp>
#include <cstring>
#include <limits>

namespace stagecoach::worker {
namespace {

namespace json = boost::json;

// Returns 0 for an unknown dtype. Its tensors are an error only if the model needs them.
uint64_t BytesOf(std::string_view dtype) {
  for (const char* name : {"BOOL", "U8", "I8", "F8_E4M3", "F8_E5M2", "F8_E8M0"}) {
    if (dtype == name) return 1;
  }
  for (const char* name : {"F16", "BF16", "I16", "U16"}) {
    if (dtype == name) return 2;
  }
  for (const char* name : {"F32", "I32", "U32"}) {
    if (dtype == name) return 4;
  }
  for (const char* name : {"F64", "I64", "U64"}) {
    if (dtype == name) return 8;
  }
  return 0;
}

std::optional<Code> CodeOf(std::string_view dtype) {
  if (dtype == "F32") return Code::kF32;
  if (dtype == "BF16") return Code::kBF16;
  if (dtype == "F16") return Code::kF16;
  return std::nullopt;
}

bool AsUint(const json::value& value, uint64_t* out) {
  if (const int64_t* number = value.if_int64(); number != nullptr && *number >= 0) {
    *out = static_cast<uint64_t>(*number);
    return true;
  }
  if (const uint64_t* number = value.if_uint64()) {
    *out = *number;
    return true;
  }
  return false;
}

// Returns an empty string if the entry is valid. `data_bytes` bytes follow the header, which ends
// at `data_begin` of the file.
std::string ReadEntry(const json::value& value, uint64_t data_begin, uint64_t data_bytes,
                      StoredTensor* entry) {
  const json::object* object = value.if_object();
  if (object == nullptr) return "is not an object";
  const json::value* dtype = object->if_contains("dtype");
  const json::value* shape = object->if_contains("shape");
  const json::value* offsets = object->if_contains("data_offsets");
  if (dtype == nullptr || !dtype->is_string()) return "has no dtype";
  if (shape == nullptr || !shape->is_array()) return "has no shape";
  if (offsets == nullptr || !offsets->is_array() || offsets->get_array().size() != 2) {
    return "has no data_offsets";
  }
  entry->dtype = std::string(dtype->get_string().data(), dtype->get_string().size());
  entry->code = CodeOf(entry->dtype);
  uint64_t n_elements = 1;
  bool overflow = false;
  for (const json::value& item : shape->get_array()) {
    uint64_t extent = 0;
    if (!AsUint(item, &extent)) return "has a shape with invalid sizes";
    overflow |= __builtin_mul_overflow(n_elements, extent, &n_elements);
    overflow |= extent > static_cast<uint64_t>(std::numeric_limits<int64_t>::max());
    entry->shape.push_back(static_cast<int64_t>(extent));
  }
  uint64_t begin = 0, end = 0, n_bytes = 0;
  if (!AsUint(offsets->get_array()[0], &begin) || !AsUint(offsets->get_array()[1], &end) ||
      begin > end) {
    return "has data_offsets that are not a range";
  }
  if (end > data_bytes) {
    return fmt::format("ends at byte {}, but the file has only {}; is the download incomplete?",
                       end, data_bytes);
  }
  const uint64_t element_bytes = BytesOf(entry->dtype);
  overflow |= __builtin_mul_overflow(n_elements, std::max<uint64_t>(element_bytes, 1), &n_bytes);
  if (overflow) return "has a shape too large for any file";
  if (element_bytes != 0 && n_bytes != end - begin) {
    return fmt::format("has {} bytes, but its shape and dtype {} need {}", end - begin,
                       entry->dtype, n_bytes);
  }
  entry->begin = data_begin + begin;
  entry->end = data_begin + end;
  return "";
}

}  // namespace

absl::StatusOr<StoredTensors> ReadSafetensors(const std::string& name,
                                              std::span<const std::byte> bytes) {
  const auto error = [&](std::string_view text) {
    return absl::InvalidArgumentError(fmt::format("{}: {}", name, text));
  };
  if (bytes.size() < 8) return error("not a safetensors file (shorter than its header)");
  uint64_t header_bytes = 0;
  std::memcpy(&header_bytes, bytes.data(), 8);
  if (header_bytes > kMaxHeaderBytes) {
    return error(fmt::format("not a safetensors file (a header of {} bytes)", header_bytes));
  }
  if (header_bytes > bytes.size() - 8) {
    return error(fmt::format("cut short: {} bytes, but the header alone needs {}", bytes.size(),
                             header_bytes + 8));
  }
  json::error_code parse_error;
  const json::value header =
      json::parse(json::string_view(reinterpret_cast<const char*>(bytes.data() + 8), header_bytes),
                  parse_error);
  if (parse_error || !header.is_object()) {
    return error(fmt::format("not a safetensors file (its header is not a JSON object: {})",
                             parse_error ? parse_error.message() : "another type"));
  }
  StoredTensors tensors;
  std::vector<std::pair<uint64_t, uint64_t>> ranges;
  for (const auto& [key, value] : header.get_object()) {
    const std::string tensor(key.data(), key.size());
    if (tensor == "__metadata__") continue;
    StoredTensor entry;
    const uint64_t data_begin = 8 + header_bytes;
    const std::string wrong = ReadEntry(value, data_begin, bytes.size() - data_begin, &entry);
    if (!wrong.empty()) return error(fmt::format("tensor {} {}", tensor, wrong));
    if (entry.end > entry.begin) ranges.emplace_back(entry.begin, entry.end);
    tensors.emplace(tensor, std::move(entry));
  }
  std::sort(ranges.begin(), ranges.end());
  for (size_t i = 1; i < ranges.size(); ++i) {
    if (ranges[i].first < ranges[i - 1].second) {
      return error(fmt::format("two tensors overlap at byte {}", ranges[i].first));
    }
  }
  return tensors;
}

}  // namespace stagecoach::worker
