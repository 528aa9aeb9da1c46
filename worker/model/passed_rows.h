// Rows of hidden states as a stage passes them on to the next one.
#pragma once

#include <cstddef>
#include <cstdint>

#include "common/config/load_config.h"
#include "common/dtype.h"
#include "common/model/model_spec.h"

namespace stagecoach::worker {

// Bytes of n rows, [n, ModelSpec::passed_width] of HiddenDTypeOf. A multiple of 4, because messages
// between GPUs are copied in words.
inline size_t PassedBytes(const ModelSpec& spec, const v1::LoadConfig& config, size_t n_rows) {
  const size_t bytes =
      n_rows * static_cast<size_t>(spec.passed_width()) * DTypeBytes(HiddenDTypeOf(config));
  return (bytes + 3) / 4 * 4;
}

}  // namespace stagecoach::worker
