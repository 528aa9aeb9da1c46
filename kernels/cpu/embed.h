// Ops::Embed: rows of the packed table, scattered as the layout has them.
#pragma once

#include "kernels/cpu/cpu_kernel.h"

namespace stagecoach::kernels {

void CpuEmbed(const EmbedArgs& args, ThreadPool& pool);
void CpuGatherRows(const GatherRowsArgs& args, ThreadPool& pool);

}  // namespace stagecoach::kernels
