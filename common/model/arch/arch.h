// The supported architectures. Each has one file in this folder; table.inc lists them.
#pragma once

#include <span>
#include <string_view>

#include "common/model/config_reader.h"
#include "common/model/model_spec.h"

namespace stagecoach::arch {

// Fills `spec` from `config`. Problems are recorded in `config`.
using ReadFn = void (*)(ConfigReader& config, ModelSpec& spec);

struct Architecture {
  std::string_view name;        // as in "architectures"
  std::string_view model_type;  // used if "architectures" is absent
  ReadFn read;
};

std::span<const Architecture> Architectures();

}  // namespace stagecoach::arch
