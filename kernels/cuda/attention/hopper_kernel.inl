// FlashInfer's prefill over contiguous keys, called without its planner: HopperPlan distributes the
// work.
#include <exception>
#include <flashinfer/attention/hopper/prefill_sm90.cuh>
#include <flashinfer/attention/hopper/variants.cuh>

#include "kernels/cuda/attention/hopper_kernels.h"

namespace stagecoach::kernels::cuda {
namespace {

// Members that FlashInfer's templates expect, with FlashInfer's names.
struct DenseParams {
  using DTypeQ = cutlass::bfloat16_t;
  using DTypeKV = cutlass::bfloat16_t;
  using DTypeO = cutlass::bfloat16_t;
  using IdType = int32_t;
  DTypeQ* q_ptr;
  DTypeKV* k_ptr;
  DTypeKV* v_ptr;
  DTypeO* o_ptr;
  float* lse_ptr;
  IdType* qo_tile_indices;
  IdType* qo_indptr;
  IdType* kv_indptr;
  IdType* qo_lens;
  IdType* kv_lens;
  IdType* head_indices;
  IdType* work_indptr;
  IdType* batch_indices;
  struct AdditionalParams {
    float logits_soft_cap;
    float sm_scale;
    const float* sinks;  // [num_qo_heads] or null
  } additional_params;
  int64_t q_stride_n, k_stride_n, v_stride_n, o_stride_n;
  int64_t q_stride_h, k_stride_h, v_stride_h, o_stride_h;
  int64_t nnz_qo, nnz_kv;
  int num_qo_heads, num_kv_heads, window_left;
};

// FlashInfer's softmax with one more key, which has no value.
template <int kRows>
struct SoftmaxWithSink : flashinfer::OnlineSoftmax<kRows, /*WITH_SCALE=*/true> {
  using Base = flashinfer::OnlineSoftmax<kRows, true>;
  float sink_exponent;  // in base 2; -inf: none, which changes no bit

  __device__ SoftmaxWithSink(float scale, float sink) : Base(scale), sink_exponent(sink) {}
  template <typename Scores>
  __device__ __forceinline__ void finalize(Scores& scores, float value_scale = 1.0f) {
    // The base adds up the sums of a row's four lanes.
    if (threadIdx.x % 4 == 0) {
#pragma unroll
      for (int i = 0; i < cute::size(Base::row_max); ++i) {
        Base::row_sum(i) += exp2f(sink_exponent - Base::row_max(i) * Base::sm_scale_log2);
      }
    }
    Base::finalize(scores, value_scale);
  }
};

template <typename Variant>
struct WithSinks : Variant {
  float sink_exponent;

  template <typename Params, typename Block>
  __device__ WithSinks(const Params& params, const Block& block) : Variant(params, block) {
    const float* const sinks = params.additional_params.sinks;
    const int head = cute::get<1>(block);
    sink_exponent =
        sinks != nullptr ? sinks[head] * flashinfer::math::log2e : -flashinfer::math::inf;
  }
  template <int kRows>
  __device__ auto GetAttentionUpdater() {
    return SoftmaxWithSink<kRows>(Variant::template GetAttentionUpdater<kRows>().sm_scale_log2,
                                  sink_exponent);
  }
};

}  // namespace

template <int kDim, bool kWithSoftcap>
cudaError_t RunHopperPrefill(const Stream& stream, const AttentionArgs& args,
                             const HopperPlan& plan, const KvHeads& heads,
                             const GatheredKeys& keys) {
  using Element = cutlass::bfloat16_t;
  const auto mutable_ids = [](const int32_t* ids) { return const_cast<int32_t*>(ids); };
  DenseParams params{};
  const int32_t group = args.n_heads / args.n_kv_heads;
  const int64_t first_element = int64_t{heads.first} * group * kDim;
  params.q_ptr = static_cast<Element*>(const_cast<void*>(args.qkv.data)) + first_element;
  params.k_ptr = static_cast<Element*>(keys.k);
  params.v_ptr = static_cast<Element*>(keys.v);
  params.o_ptr = static_cast<Element*>(args.out.data) + first_element;
  params.qo_tile_indices = mutable_ids(plan.tiles);
  params.qo_indptr = mutable_ids(plan.first_rows);
  params.kv_indptr = mutable_ids(plan.first_keys);
  params.qo_lens = mutable_ids(plan.n_rows);
  params.kv_lens = mutable_ids(plan.n_keys);
  params.head_indices = mutable_ids(plan.heads);
  params.work_indptr = mutable_ids(plan.block_starts);
  params.batch_indices = mutable_ids(plan.seqs);
  params.additional_params = {
      args.softcap, args.scale,
      args.sinks != nullptr ? args.sinks + int64_t{heads.first} * group : nullptr};
  params.q_stride_n = (int64_t{args.n_heads} + NKvVectors(args.kv_of_row) * args.n_kv_heads) * kDim;
  params.q_stride_h = params.o_stride_h = kDim;
  params.o_stride_n = int64_t{args.n_heads} * kDim;
  params.k_stride_n = params.v_stride_n = kDim;
  params.k_stride_h = params.v_stride_h = keys.capacity * kDim;
  params.nnz_qo = args.step->n_tokens;
  params.nnz_kv = keys.capacity;
  params.num_qo_heads = heads.n * group;
  params.num_kv_heads = heads.n;
  params.window_left = -1;
  using Variant = WithSinks<
      std::conditional_t<kWithSoftcap, flashinfer::LogitsSoftCap, flashinfer::StandardAttention>>;
  try {
    return flashinfer::BatchPrefillWithRaggedKVCacheDispatched<
        kDim, kDim, flashinfer::MaskMode::kCausal, /*LEFT_SLIDING_WINDOW=*/false,
        /*SAME_SCHEDULE_FOR_ALL_HEADS=*/false, Variant>(params, /*enable_pdl=*/false,
                                                        stream.handle);
  } catch (const std::exception&) {
    return cudaErrorInvalidValue;
  }
}

}  // namespace stagecoach::kernels::cuda
