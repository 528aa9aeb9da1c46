// What a checkpoint's config.json says about quantized weights.
#pragma once

#include <cstdint>

#include "common/model/config_reader.h"

namespace stagecoach {

enum class QuantMethod : uint8_t {
  kNone,
  kFp8,
  kGptq,
  kAwq,
  kCompressedTensors,
  kMxFp4,
  kModelOpt
};

// Which matrices are quantized, and how finely, shows in the tensors: lists of excluded layers and
// groups with other settings need not be read.
struct Quantization {
  QuantMethod method = QuantMethod::kNone;
  int32_t group_size = 0;           // inputs that share a scale: kFp8, kGptq, kAwq; 0: all
  bool zeros_are_one_less = false;  // kGptq: a stored zero z means z + 1
};

// Reads quantization_config. Reports methods and settings that are not supported.
Quantization ReadQuantization(ConfigReader& config);

// Reads hf_quant_config.json, which ModelOpt writes beside a config.json that may say nothing about
// quantization. Reports settings that are not supported.
Quantization ReadModelOptFile(ConfigReader& file);

}  // namespace stagecoach
