#include "common/model/arch/arch.h"

namespace stagecoach::arch {

#define ARCHITECTURE(name, model_type, read) void read(ConfigReader& config, ModelSpec& spec);
#include "common/model/arch/table.inc"
#undef ARCHITECTURE

std::span<const Architecture> Architectures() {
  static constexpr Architecture kTable[] = {
#define ARCHITECTURE(name, model_type, read) {name, model_type, read},
#include "common/model/arch/table.inc"
#undef ARCHITECTURE
  };
  return kTable;
}

}  // namespace stagecoach::arch
