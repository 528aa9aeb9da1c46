// The architectures that can be served. One file in this folder each; table.inc lists them.
#pragma once

#include <span>
#include <string_view>

#include "common/model/config_reader.h"
#include "common/model/model_spec.h"

namespace stagecoach::arch {

// Fills `spec` in from `config`; problems stay in `config`.
using ReadFn = void (*)(ConfigReader& config, ModelSpec& spec);

struct Architecture {
  std::string_view name;        // of "architectures"
  std::string_view model_type;  // used where "architectures" is absent
  ReadFn read;
};

std::span<const Architecture> Architectures();

}  // namespace stagecoach::arch
