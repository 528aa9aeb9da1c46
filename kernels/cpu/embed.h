// Ops::Embed, which reads the scattered values of a packed table's rows, Ops::GatherRows,
// Ops::Convert and Ops::Scale.
#pragma once

#include "kernels/cpu/cpu_kernel.h"

namespace stagecoach::kernels {

void CpuEmbed(const EmbedArgs& args, ThreadPool& pool);
void CpuGatherRows(const GatherRowsArgs& args, ThreadPool& pool);
void CpuConvert(ConstAct from, Act to, int64_t n, ThreadPool& pool);
void CpuScale(float* x, int64_t n, float factor, ThreadPool& pool);

}  // namespace stagecoach::kernels
