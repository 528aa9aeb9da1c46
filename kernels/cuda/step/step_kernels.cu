#include "kernels/cuda/step/step_kernels.h"

#include <algorithm>

namespace stagecoach::kernels::cuda {
namespace {

constexpr int kThreads = 256;

// This thread's index in the grid, and the number of threads in the grid.
__device__ __forceinline__ int32_t GlobalThread() {
  return static_cast<int32_t>(blockIdx.x * blockDim.x + threadIdx.x);
}
__device__ __forceinline__ int32_t AllThreads() {
  return static_cast<int32_t>(gridDim.x * blockDim.x);
}

__global__ void NewBlocksKernel(const StepParams p) {
  LetNextStart();
  WaitForPrevious();
  for (int32_t i = GlobalThread(); i < p.n_new_blocks; i += AllThreads()) {
    const NewBlock entry = p.new_blocks[i];
    p.groups[entry.group].block_tables[int64_t{entry.slot} * p.block_table_stride + entry.index] =
        entry.block;
  }
}

template <typename T>
__device__ __forceinline__ void Copy(const T* from, T* to, int32_t n) {
  for (int32_t i = GlobalThread(); i < n; i += AllThreads()) to[i] = from[i];
}

__device__ __forceinline__ void CopySeqs(const StepParams& p) {
  for (int32_t s = GlobalThread(); s < p.n_seqs; s += AllThreads()) {
    p.seq_positions[s] = p.new_seqs[s].position;
    p.seq_slots[s] = p.new_seqs[s].slot;
    if (p.new_saves != nullptr) p.saves[s] = p.new_saves[s];
  }
  if (GlobalThread() == 0) {
    *p.n_seqs_out = p.n_seqs;
    *p.n_decodes_out = p.n_decodes;
  }
}

__device__ __forceinline__ void MakeRows(const StepParams& p) {
  for (int32_t row = GlobalThread(); row < p.n_rows; row += AllThreads()) {
    if (row >= p.n_tokens) {
      p.token_ids[row] = 0;
      p.positions[row] = 0;
      for (int32_t g = 0; g < p.n_groups; ++g) p.groups[g].kv_slots[row] = -1;
      continue;
    }
    const int32_t s = p.row_seqs[row];
    const int32_t id = p.new_token_ids != nullptr ? p.new_token_ids[row] : 0;
    const StepSeq seq = p.new_seqs[s];
    const int32_t position = seq.position + row - p.new_starts[s];
    p.positions[row] = position;
    for (int32_t g = 0; g < p.n_groups; ++g) {
      const int32_t* const table =
          p.groups[g].block_tables + int64_t{seq.slot} * p.block_table_stride;
      p.groups[g].kv_slots[row] =
          table[position / kBlockTokens] * kBlockTokens + position % kBlockTokens;
    }
    if (p.new_token_ids != nullptr) {
      p.token_ids[row] = id == kSampledToken ? p.sampled[seq.slot] : id;
    }
  }
}

// The new data lies in pinned host memory, with 1 to 2 us latency per access. CTAs with different
// blockIdx.y do different parts, so that these latencies overlap.
constexpr unsigned kParts = 8;

// Never calls LetNextStart(). So every later kernel finds the plan complete when it starts, and may
// read it before WaitForPrevious().
__global__ void RowsKernel(const StepParams p) {
  WaitForPrevious();
  switch (blockIdx.y) {
    case 0:
      return MakeRows(p);
    case 1:
      return CopySeqs(p);
    case 2:
      return Copy(p.new_starts, p.seq_starts, p.n_seqs + 1);
    case 3:
      return Copy(p.new_decodes, p.decodes, p.n_decodes);
    case 4:
      for (int32_t g = 0; g < p.n_groups; ++g) {
        Copy(p.new_unit_starts + g * (p.n_decodes + 1), p.groups[g].unit_starts, p.n_decodes + 1);
      }
      return;
    case 5:
      for (int32_t g = 0; g < p.n_groups; ++g) {
        Copy(p.new_shares + g * p.n_shares, p.groups[g].shares, p.n_shares);
      }
      return;
    case 6:
      return Copy(p.new_hopper, p.hopper, p.n_hopper);
    default:
      for (int32_t g = 0; g < p.n_groups; ++g) {
        const StepParams::Group& group = p.groups[g];
        Copy(group.new_part_starts, group.part_starts, group.n_part_starts);
        Copy(group.new_parts, group.parts, group.n_parts);
        Copy(group.new_merges, group.merges, group.n_merges);
      }
  }
}

LaunchShape ShapeFor(int64_t n) {
  return {.grid = dim3(static_cast<unsigned>(std::min<int64_t>(CeilDiv(n, kThreads), 256))),
          .block = kThreads};
}

}  // namespace

cudaError_t ApplyNewBlocks(const Stream& stream, const StepParams& params) {
  return Launch<&NewBlocksKernel>(stream, ShapeFor(params.n_new_blocks), params);
}

cudaError_t BuildRows(const Stream& stream, const StepParams& params) {
  int32_t n = std::max({params.n_rows, params.n_seqs + 1, params.n_hopper, params.n_shares});
  for (int32_t g = 0; g < params.n_groups; ++g) {
    n = std::max({n, params.groups[g].n_part_starts, params.groups[g].n_parts});
  }
  LaunchShape shape = ShapeFor(n);
  shape.grid.y = kParts;
  return Launch<&RowsKernel>(stream, shape, params);
}

}  // namespace stagecoach::kernels::cuda
