// How compressed-tensors spells a quantized matrix: "pack-quantized" for INT4 and INT8,
// "float-quantized" for FP8.
#pragma once

#include <boost/json/fwd.hpp>
#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/encoding/encoding.h"
#include "worker/loader/safetensors_writer.h"

namespace stagecoach::quantize {

// The tensors in place of "...weight" [rows, cols], in the order of SpelledData.
std::vector<worker::TensorToWrite> SpelledTensors(std::string_view weight, const Encoding& encoding,
                                                  size_t rows, size_t cols);

// The data of these tensors, one after another. `stored`: the rows in the form of
// common/encoding/rows.h.
std::vector<uint8_t> SpelledData(const Encoding& encoding, const uint8_t* stored, size_t rows,
                                 size_t cols);

// Modules by the number of inputs that share a scale; 0: all of a row.
using ModulesByGroup = std::map<int32_t, std::vector<std::string>>;

// The section quantization_config of config.json. ignored: modules that stay as they are.
boost::json::object QuantizationConfig(Code code, const ModulesByGroup& modules,
                                       std::span<const std::string> ignored);

}  // namespace stagecoach::quantize
