// Ops::Embed, which reads the scattered values of a packed table's rows, and Ops::GatherRows.
#pragma once

#include "kernels/cpu/cpu_kernel.h"

namespace stagecoach::kernels {

void CpuEmbed(const EmbedArgs& args, ThreadPool& pool);
void CpuGatherRows(const GatherRowsArgs& args, ThreadPool& pool);

}  // namespace stagecoach::kernels
