// Ops::ExportKv and Ops::ImportKv: between panels and rows.
#pragma once

#include "kernels/cpu/thread_pool.h"
#include "kernels/op_args.h"

namespace stagecoach::kernels {

void CpuExportKv(const KvCopyArgs& args, ThreadPool& pool);
void CpuImportKv(const KvCopyArgs& args, ThreadPool& pool);

}  // namespace stagecoach::kernels
