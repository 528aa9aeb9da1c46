#include "cli/quantize/compressed_tensors.h"

#include <fmt/format.h>

#include <boost/json.hpp>
#include <cstring>

#include "common/dtype.h"
#include "common/encoding/rows.h"

namespace stagecoach::quantize {
namespace {

const char* Spelling(DType dtype) {
  if (dtype == DType::kF32) return "F32";
  return dtype == DType::kBF16 ? "BF16" : "F16";
}

boost::json::object Arguments(Code code, int32_t group) {
  boost::json::object arguments{{"num_bits", GroupedBits(code)},
                                {"type", code == Code::kFp8 ? "float" : "int"},
                                {"symmetric", true},
                                {"strategy", group == 0 ? "channel" : "group"},
                                {"dynamic", false}};
  if (group > 0) arguments["group_size"] = group;
  return arguments;
}

}  // namespace

std::vector<worker::TensorToWrite> SpelledTensors(std::string_view weight, const Encoding& encoding,
                                                  size_t rows, size_t cols) {
  const std::string name(weight);
  const auto n_rows = static_cast<int64_t>(rows), n_cols = static_cast<int64_t>(cols);
  const size_t n_groups = GroupCount(encoding, cols);
  const worker::TensorToWrite scale{name + "_scale",
                                    Spelling(encoding.scale),
                                    {n_rows, static_cast<int64_t>(n_groups)},
                                    rows * n_groups * DTypeBytes(encoding.scale)};
  if (encoding.code == Code::kFp8) {
    return {{name, "F8_E4M3", {n_rows, n_cols}, rows * cols}, scale};
  }
  const size_t n_words = cols * GroupedBits(encoding.code) / 32;
  return {{name + "_packed", "I32", {n_rows, static_cast<int64_t>(n_words)}, rows * n_words * 4},
          scale,
          {name + "_shape", "I64", {2}, 16}};
}

std::vector<uint8_t> SpelledData(const Encoding& encoding, const uint8_t* stored, size_t rows,
                                 size_t cols) {
  const size_t code_bytes = cols * GroupedBits(encoding.code) / 8;
  const size_t scale_bytes = GroupCount(encoding, cols) * DTypeBytes(encoding.scale);
  std::vector<uint8_t> data(rows * (code_bytes + scale_bytes));
  const size_t row_bytes = RowBytes(encoding, cols);
  // Packed codes have no sign: -128 is 0.
  const uint8_t sign = encoding.code == Code::kInt8 ? 0x80 : 0;
  for (size_t r = 0; r < rows; ++r) {
    const auto row = GroupedRowAt(encoding, cols, stored + r * row_bytes);
    uint8_t* const codes = data.data() + r * code_bytes;
    for (size_t i = 0; i < code_bytes; ++i) codes[i] = row.codes[i] ^ sign;
    std::memcpy(data.data() + rows * code_bytes + r * scale_bytes, row.scales, scale_bytes);
  }
  if (encoding.code == Code::kFp8) return data;
  const int64_t shape[2] = {static_cast<int64_t>(rows), static_cast<int64_t>(cols)};
  const auto* const bytes = reinterpret_cast<const uint8_t*>(shape);
  data.insert(data.end(), bytes, bytes + sizeof(shape));
  return data;
}

boost::json::object QuantizationConfig(Code code, const ModulesByGroup& modules,
                                       std::span<const std::string> ignored) {
  const char* const format = code == Code::kFp8 ? "float-quantized" : "pack-quantized";
  boost::json::object groups;
  for (const auto& [group, names] : modules) {
    // The last group takes all modules that no other one names.
    boost::json::array targets{"Linear"};
    if (group != modules.rbegin()->first) targets = boost::json::array(names.begin(), names.end());
    groups[fmt::format("group_{}", groups.size())] = {{"targets", std::move(targets)},
                                                      {"weights", Arguments(code, group)},
                                                      {"input_activations", nullptr},
                                                      {"output_activations", nullptr},
                                                      {"format", format}};
  }
  return {{"quant_method", "compressed-tensors"},
          {"format", format},
          {"quantization_status", "compressed"},
          {"config_groups", std::move(groups)},
          {"ignore", boost::json::array(ignored.begin(), ignored.end())},
          {"kv_cache_scheme", nullptr}};
}

}  // namespace stagecoach::quantize
