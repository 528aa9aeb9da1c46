// The states of recurrent layers. The columns of a head's matrix do not depend on each other, so a
// CTA keeps 32 of them in registers over all rows of a sequence: a warp has 8 columns. With
// g = lane / 4 and c = lane % 4, a lane has columns 2c and 2c + 1 of these, and 4 keys of every 32:
// from 4g on. Rows arrive in shared memory, a few at a time.
#include "common/check.h"
#include "kernels/cuda/device/numbers.h"
#include "kernels/cuda/device/shared_memory.h"
#include "kernels/cuda/device/warp.h"
#include "kernels/cuda/recurrent/recurrence.h"

namespace stagecoach::kernels::cuda {
namespace {

constexpr int kColumns = 32;  // of a CTA
constexpr int kThreads = 128;
constexpr int kStageRows = 8;
// Channels of the convolution's state that a CTA moves on.
constexpr int kChannels = 4 * kThreads;

struct StateParams {
  RecurrentShape shape;
  const float* projected;
  const float *a_log, *skip;  // skip: only in state-space layers
  float *states, *mixed;
  const int32_t *seq_starts, *seq_positions, *seq_slots, *n_seqs;
  const SeqSave* saves;
  int32_t n_slices;  // of a head
  bool is_wide;      // rows of `mixed` may be copied 16 bytes at a time
};

// The rows of a sequence and its states.
struct Rows {
  int32_t begin, end;
  bool is_new;
  float *state, *saved;  // saved: receives the state as it is before row save_end
  int32_t save_end;      // -1: never

  __device__ __forceinline__ static Rows Of(const StateParams& p, int32_t seq) {
    const int64_t n = p.shape.state_elements();
    const int32_t begin = LoadPlan(p.seq_starts + seq);
    const int32_t* const save = reinterpret_cast<const int32_t*>(p.saves + seq);
    const int32_t n_saved = LoadPlan(save);
    return {.begin = begin,
            .end = LoadPlan(p.seq_starts + seq + 1),
            .is_new = LoadPlan(p.seq_positions + seq) == 0,
            .state = p.states + LoadPlan(p.seq_slots + seq) * n,
            .saved = n_saved > 0 ? p.states + LoadPlan(save + 1) * n : nullptr,
            .save_end = n_saved > 0 ? begin + n_saved : -1};
  }
};

// Moves the kept columns of some channels on.
__device__ __forceinline__ void MoveColumns(const StateParams& p, const Rows& rows,
                                            int32_t first_channel) {
  const RecurrentShape& shape = p.shape;
  const int32_t n_kept = shape.conv_width - 1, n_channels = shape.n_channels();
  const int32_t keys = shape.keys_width();
  const int32_t end = min(first_channel + kChannels, n_channels);
  for (int32_t channel = first_channel + static_cast<int32_t>(threadIdx.x); channel < end;
       channel += kThreads) {
    int32_t at = 0;
    if (shape.is_state_space()) {
      at = shape.v_at(0) + channel;
    } else if (channel < keys) {
      at = shape.q_at(channel / shape.key_dim) + channel % shape.key_dim;
    } else if (channel < 2 * keys) {
      at = shape.k_at((channel - keys) / shape.key_dim) + channel % shape.key_dim;
    } else {
      const int32_t of_values = channel - 2 * keys;
      at = shape.v_at(of_values / shape.value_dim) + of_values % shape.value_dim;
    }
    // Counted from the first kept column.
    const auto column = [&](int32_t i) {
      if (i >= n_kept) {
        return p.projected[int64_t{rows.begin + i - n_kept} * shape.projected_width() + at];
      }
      return rows.is_new ? 0.0f : rows.state[int64_t{i} * n_channels + channel];
    };
    const auto keep = [&](int32_t n_done, float* state) {
      // In this order, a column is read before it is overwritten.
      for (int32_t j = 0; j < n_kept; ++j) {
        state[int64_t{j} * n_channels + channel] = column(n_done + j);
      }
    };
    if (rows.saved != nullptr) keep(rows.save_end - rows.begin, rows.saved);
    keep(rows.end - rows.begin, rows.state);
  }
}

// Some rows of a sequence in shared memory.
template <int kKeys>
struct Stage {
  alignas(16) float q[kStageRows][kKeys];
  alignas(16) float k[kStageRows][kKeys];
  alignas(16) float v[kStageRows][kColumns];
  float beta[kStageRows], decay[kStageRows];
};

// kPieces: groups of 32 keys.
template <int kPieces, bool kIsDelta>
struct HeadBlock {
  static constexpr int kKeys = 32 * kPieces;

  const StateParams& p;
  const Rows& rows;
  Stage<kKeys>* const stages;  // [2]
  const int32_t head, first;   // the head, and the first of its columns
  const int lane = static_cast<int>(threadIdx.x) % kWarpThreads;
  const int group = lane / 4;
  // Column of this lane's pair, counted from `first`.
  const int column = static_cast<int>(threadIdx.x) / kWarpThreads * 8 + lane % 4 * 2;
  const int32_t n_columns = min(p.shape.value_dim - first, static_cast<int32_t>(kColumns));
  // Places in a row of `mixed`, and in one of the projection. Computed once, because they take
  // divisions.
  const int32_t n_channels = p.shape.n_channels(), projected_width = p.shape.projected_width();
  const int32_t q_at = p.shape.q_channel(head / p.shape.heads_per_key());
  const int32_t k_at = p.shape.k_channel(head / p.shape.heads_per_key());
  const int32_t v_at = p.shape.v_channel(head) + first;
  const int32_t a_at = p.shape.a_at(head), b_at = kIsDelta ? p.shape.b_at(head) : a_at;
  const float rate = kIsDelta ? 0.0f : expf(p.a_log[head]);
  const float skip = kIsDelta ? 0.0f : p.skip[head];
  const int64_t matrix_at =
      p.shape.conv_elements() + (int64_t{head} * p.shape.value_dim + first) * p.shape.key_dim;

  // A whole block lies in a state in the order of threads, 4 values each; others row by row.
  __device__ __forceinline__ bool IsWhole() const {
    return p.shape.key_dim == kKeys && n_columns == kColumns && matrix_at % 4 == 0 &&
           p.shape.state_elements() % 4 == 0;
  }
  // Calls each(matrix value, its place in a state) for a block that is not whole.
  template <typename Each>
  __device__ __forceinline__ void ForEachPlace(float (&matrix)[kPieces][4][2],
                                               const Each& each) const {
#pragma unroll
    for (int i = 0; i < kPieces; ++i) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const int32_t key = 32 * i + 4 * group + e;
#pragma unroll
        for (int c = 0; c < 2; ++c) {
          if (key >= p.shape.key_dim || column + c >= n_columns) continue;
          each(matrix[i][e][c], matrix_at + int64_t{key} * n_columns + column + c);
        }
      }
    }
  }
  __device__ __forceinline__ void Load(float (&matrix)[kPieces][4][2]) const {
    if (!rows.is_new && IsWhole()) {
      const auto* const from =
          reinterpret_cast<const float4*>(rows.state + matrix_at) + threadIdx.x;
#pragma unroll
      for (int i = 0; i < kPieces; ++i) {
#pragma unroll
        for (int e = 0; e < 4; e += 2) {
          const float4 four = from[(2 * i + e / 2) * kThreads];
          matrix[i][e][0] = four.x, matrix[i][e][1] = four.y;
          matrix[i][e + 1][0] = four.z, matrix[i][e + 1][1] = four.w;
        }
      }
      return;
    }
#pragma unroll
    for (int i = 0; i < kPieces; ++i) {
#pragma unroll
      for (int e = 0; e < 4; ++e) matrix[i][e][0] = matrix[i][e][1] = 0;
    }
    if (rows.is_new) return;
    ForEachPlace(matrix, [&](float& value, int64_t place) { value = rows.state[place]; });
  }
  __device__ __forceinline__ void Store(float (&matrix)[kPieces][4][2], float* state) const {
    if (IsWhole()) {
      auto* const to = reinterpret_cast<float4*>(state + matrix_at) + threadIdx.x;
#pragma unroll
      for (int i = 0; i < kPieces; ++i) {
#pragma unroll
        for (int e = 0; e < 4; e += 2) {
          to[(2 * i + e / 2) * kThreads] =
              float4{matrix[i][e][0], matrix[i][e][1], matrix[i][e + 1][0], matrix[i][e + 1][1]};
        }
      }
      return;
    }
    ForEachPlace(matrix, [&](const float& value, int64_t place) { state[place] = value; });
  }

  // Starts copies of `n` elements and zeros up to kAll, for every row of a stage.
  // kN: elements per copy.
  template <int kN, int kAll>
  __device__ __forceinline__ void CopyRows(float (&to)[kStageRows][kAll], const float* from,
                                           int32_t n, int32_t n_rows) const {
    constexpr int kPerRow = kAll / kN;
#pragma unroll 1
    for (int i = static_cast<int>(threadIdx.x); i < n_rows * kPerRow; i += kThreads) {
      const int row = i / kPerRow, at = i % kPerRow * kN;
      const bool wanted = at < n;
      const float* const source = from + row * n_channels + (wanted ? at : 0);
      if constexpr (kN == 4) {
        CopyAsync16(&to[row][at], source, wanted);
      } else {
        CopyAsync4(&to[row][at], source, wanted);
      }
    }
  }
  template <int kN>
  __device__ __forceinline__ void CopyRows(Stage<kKeys>& stage, const float* row,
                                           int32_t n_rows) const {
    CopyRows<kN>(stage.q, row + q_at, p.shape.key_dim, n_rows);
    CopyRows<kN>(stage.k, row + k_at, p.shape.key_dim, n_rows);
    CopyRows<kN>(stage.v, row + v_at, n_columns, n_rows);
  }
  __device__ __forceinline__ Stage<kKeys>& StageOf(int32_t row) const {
    return stages[(row - rows.begin) / kStageRows % 2];
  }
  __device__ __forceinline__ void Fetch(int32_t begin) const {
    Stage<kKeys>& stage = StageOf(begin);
    const int32_t n = min(rows.end - begin, static_cast<int32_t>(kStageRows));
    const float* const row = p.mixed + int64_t{begin} * n_channels;
    if (p.is_wide) {
      CopyRows<4>(stage, row, n);
    } else {
      CopyRows<1>(stage, row, n);
    }
    const auto thread = static_cast<int32_t>(threadIdx.x);
    if (thread >= n) return;
    const float* const rates = p.projected + int64_t{begin + thread} * projected_width;
    CopyAsync4(stage.beta + thread, rates + b_at, true);
    if constexpr (kIsDelta) CopyAsync4(stage.decay + thread, rates + a_at, true);
  }

  __device__ __forceinline__ static float SumOfGroups(float value) {
#pragma unroll
    for (int mask = 4; mask < kWarpThreads; mask *= 2) {
      value += __shfl_xor_sync(kAllLanes, value, mask);
    }
    return value;
  }
  // Passes one row. Every sum has two parts per lane, so that additions wait less for one another.
  __device__ __forceinline__ void Step(const Stage<kKeys>& stage, int at, int32_t row,
                                       float (&matrix)[kPieces][4][2]) const {
    float k[kPieces][4];
    const float beta = stage.beta[at];
    const float decay = kIsDelta ? stage.decay[at] : expf(RoundedProduct(-rate, beta));
    float sums[2][2] = {};  // [column][part]
#pragma unroll
    for (int i = 0; i < kPieces; ++i) {
      LoadFloats<4>(stage.k[at] + 32 * i + 4 * group, k[i]);
      if constexpr (!kIsDelta) continue;
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        sums[0][e % 2] = fmaf(matrix[i][e][0], k[i][e], sums[0][e % 2]);
        sums[1][e % 2] = fmaf(matrix[i][e][1], k[i][e], sums[1][e % 2]);
      }
    }
    float delta[2];
#pragma unroll
    for (int c = 0; c < 2; ++c) {
      float unknown = stage.v[at][column + c];
      if constexpr (kIsDelta) {
        unknown -= RoundedProduct(decay, SumOfGroups(sums[c][0] + sums[c][1]));
      }
      delta[c] = RoundedProduct(beta, unknown);
      sums[c][0] = sums[c][1] = 0;
    }
#pragma unroll
    for (int i = 0; i < kPieces; ++i) {
      float q[4];
      LoadFloats<4>(stage.q[at] + 32 * i + 4 * group, q);
#pragma unroll
      for (int e = 0; e < 4; ++e) {
#pragma unroll
        for (int c = 0; c < 2; ++c) {
          float& m = matrix[i][e][c];
          m = fmaf(k[i][e], delta[c], RoundedProduct(decay, m));
          sums[c][e % 2] = fmaf(m, q[e], sums[c][e % 2]);
        }
      }
    }
    float* const out = p.mixed + int64_t{row} * n_channels + v_at + column;
#pragma unroll
    for (int c = 0; c < 2; ++c) {
      float sum = SumOfGroups(sums[c][0] + sums[c][1]);
      if constexpr (!kIsDelta) sum = fmaf(skip, stage.v[at][column + c], sum);
      if (group == 0 && column + c < n_columns) out[c] = sum;
    }
  }

  __device__ __forceinline__ void Run() const {
    float matrix[kPieces][4][2];
    // Before WaitForPrevious(): an earlier step wrote the state.
    Load(matrix);
    WaitForPrevious();
    int32_t fetched = rows.begin;
    // Each piece of code is there once, else registers run short.
#pragma unroll 1
    for (int32_t begin = rows.begin; begin < rows.end; begin += kStageRows) {
      // Wait until all warps are done with the stage that is overwritten next.
      __syncthreads();
#pragma unroll 1
      for (; fetched <= begin + kStageRows; fetched += kStageRows) {
        if (fetched < rows.end) Fetch(fetched);
        CommitCopies();
      }
      WaitForCopies<1>();
      __syncthreads();
      const Stage<kKeys>& stage = StageOf(begin);
      const int n = min(rows.end - begin, static_cast<int32_t>(kStageRows));
#pragma unroll 1
      for (int at = 0; at < n; ++at) {
        const int32_t row = begin + at;
        Step(stage, at, row, matrix);
        if (row + 1 != rows.save_end && row + 1 != rows.end) continue;
#pragma unroll 1
        for (int turn = 0; turn < 2; ++turn) {
          const bool saves = turn == 0;
          if (row + 1 == (saves ? rows.save_end : rows.end)) {
            Store(matrix, saves ? rows.saved : rows.state);
          }
        }
      }
    }
  }
};

// Grid: x is the sequence; y is a block of columns of a head, or some channels of the convolution.
template <int kPieces, bool kIsDelta>
__global__ void __launch_bounds__(kThreads, kPieces <= 4 ? 4 : 2)
    StatesKernel(const StateParams p) {
  LetNextStart();
  // The plan is complete: the kernel that builds it never calls LetNextStart().
  if (static_cast<int32_t>(blockIdx.x) >= LoadPlan(p.n_seqs)) return WaitForPrevious();
  const Rows rows = Rows::Of(p, static_cast<int32_t>(blockIdx.x));
  const auto index = static_cast<int32_t>(blockIdx.y);
  const int32_t n_blocks = p.shape.n_value_heads * p.n_slices;
  if (index >= n_blocks) {
    WaitForPrevious();
    return MoveColumns(p, rows, (index - n_blocks) * kChannels);
  }
  using Block = HeadBlock<kPieces, kIsDelta>;
  Block{p, rows, reinterpret_cast<Stage<Block::kKeys>*>(DynamicShared()), index / p.n_slices,
        index % p.n_slices * kColumns}
      .Run();
}

template <int kPieces>
cudaError_t LaunchStates(const Stream& stream, const StateParams& params, int32_t max_seqs) {
  const int64_t n_blocks = int64_t{params.shape.n_value_heads} * params.n_slices +
                           CeilDiv(params.shape.n_channels(), kChannels);
  const LaunchShape shape{
      .grid = dim3(static_cast<unsigned>(max_seqs), static_cast<unsigned>(n_blocks)),
      .block = kThreads,
      .shared_bytes = 2 * sizeof(Stage<32 * kPieces>)};
  return params.shape.is_state_space()
             ? Launch<&StatesKernel<kPieces, false>>(stream, shape, params)
             : Launch<&StatesKernel<kPieces, true>>(stream, shape, params);
}

}  // namespace

cudaError_t RunStates(const Stream& stream, const RecurrenceArgs& args,
                      const RecurrencePlan& plan) {
  const RecurrentShape& shape = args.shape;
  SC_CHECK(shape.key_dim <= kMaxGpuRecurrentKeys);
  const StepInputs& step = *args.step;
  const StateParams params{.shape = shape,
                           .projected = args.projected,
                           .a_log = args.a_log,
                           .skip = args.skip,
                           .states = args.states,
                           .mixed = args.mixed,
                           .seq_starts = step.seq_starts,
                           .seq_positions = step.seq_positions,
                           .seq_slots = step.seq_slots,
                           .n_seqs = plan.n_seqs,
                           .saves = plan.saves,
                           .n_slices = static_cast<int32_t>(CeilDiv(shape.value_dim, kColumns)),
                           .is_wide = shape.key_dim % 4 == 0 && shape.value_dim % 4 == 0};
  if (shape.key_dim <= 32) return LaunchStates<1>(stream, params, plan.max_seqs);
  if (shape.key_dim <= 64) return LaunchStates<2>(stream, params, plan.max_seqs);
  if (shape.key_dim <= 128) return LaunchStates<4>(stream, params, plan.max_seqs);
  return LaunchStates<8>(stream, params, plan.max_seqs);
}

}  // namespace stagecoach::kernels::cuda
