#include "common/nccl_version.h"

#include <fmt/format.h>

namespace stagecoach {

std::string NcclVersionName(int version) {
  const int major = version < 10000 ? 1000 : 10000;
  return fmt::format("{}.{}.{}", version / major, version % major / 100, version % 100);
}

}  // namespace stagecoach
