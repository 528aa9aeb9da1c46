// The architectures that can be served. One file in this folder each; table.cpp lists them.
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

void ReadOpt(ConfigReader& config, ModelSpec& spec);
void ReadLlama(ConfigReader& config, ModelSpec& spec);
void ReadMistral(ConfigReader& config, ModelSpec& spec);
void ReadGemma2(ConfigReader& config, ModelSpec& spec);
void ReadGemma3(ConfigReader& config, ModelSpec& spec);
void ReadGemma3Multimodal(ConfigReader& config, ModelSpec& spec);

}  // namespace stagecoach::arch
