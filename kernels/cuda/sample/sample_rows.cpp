#include "kernels/cuda/sample/sample_rows.h"

#include <algorithm>

#include "common/check.h"
#include "common/status.h"
#include "kernels/cuda/device/device_buffer.h"
#include "kernels/cuda/sample/sample.h"

namespace stagecoach::kernels::cuda {
namespace {

// An edited token needs its list entry and space for its original logit.
size_t StagedBytes(const SampleRow& row) {
  return sizeof(DeviceSampleRow) + row.counts.size() * (sizeof(TokenCount) + sizeof(float)) +
         (row.forbidden.size() + row.bias_ids.size()) * 3 * sizeof(float) +
         row.allowed.size_bytes();
}

// Takes consecutive arrays from staged memory.
class Arrays {
 public:
  explicit Arrays(void* memory) : next_(static_cast<unsigned char*>(memory)) {}
  template <typename T>
  T* Take(size_t n) {
    T* const taken = reinterpret_cast<T*>(next_);
    next_ += n * sizeof(T);
    return taken;
  }

 private:
  unsigned char* next_;
};

// Appends `values` to an array and returns the index of the first one.
template <typename T>
int32_t Append(std::span<const T> values, T* array, int32_t* n) {
  const int32_t first = *n;
  std::copy(values.begin(), values.end(), array + first);
  *n += static_cast<int32_t>(values.size());
  return first;
}

}  // namespace

SampleRowStager::~SampleRowStager() {
  if (copied_ != nullptr) cudaEventDestroy(copied_);
  if (sampled_ != nullptr) cudaEventDestroy(sampled_);
  if (copies_ != nullptr) cudaStreamDestroy(copies_);
}

absl::Status SampleRowStager::Run(const SampleArgs& args) {
  SC_CHECK(args.vocab > 0 && args.rows.size() == args.out.size());
  size_t first = 0, bytes = 0;
  for (size_t r = 0; r < args.rows.size(); ++r) {
    const size_t more = StagedBytes(args.rows[r]);
    if (more > HostRing::kSegmentBytes) {
      return absl::ResourceExhaustedError("too many penalized, forbidden and biased tokens");
    }
    if (bytes + more > HostRing::kSegmentBytes) {
      SC_RETURN_IF_ERROR(RunPart(args, first, r - first));
      first = r;
      bytes = 0;
    }
    bytes += more;
  }
  return RunPart(args, first, args.rows.size() - first);
}

absl::Status SampleRowStager::RunPart(const SampleArgs& args, size_t first, size_t n) {
  size_t bytes = 0, n_counts = 0, n_forbidden = 0, n_bias = 0, n_mask_words = 0;
  for (const SampleRow& row : args.rows.subspan(first, n)) {
    bytes += StagedBytes(row);
    n_counts += row.counts.size();
    n_forbidden += row.forbidden.size();
    n_bias += row.bias_ids.size();
    n_mask_words += row.allowed.size();
  }
  SC_ASSIGN_OR_RETURN(void* const staged, ring_->Take(bytes));
  Arrays arrays(staged);
  DeviceSampleRow* const rows = arrays.Take<DeviceSampleRow>(n);
  TokenCount* const counts = arrays.Take<TokenCount>(n_counts);
  int32_t* const forbidden = arrays.Take<int32_t>(n_forbidden);
  int32_t* const bias_ids = arrays.Take<int32_t>(n_bias);
  float* const bias_values = arrays.Take<float>(n_bias);
  float* const originals = arrays.Take<float>(n_counts + n_forbidden + n_bias);
  uint32_t* const masks = arrays.Take<uint32_t>(n_mask_words);

  if (n_mask_words > 0) {
    uint32_t* next = masks;
    for (const SampleRow& row : args.rows.subspan(first, n)) {
      next = std::copy(row.allowed.begin(), row.allowed.end(), next);
    }
    SC_RETURN_IF_ERROR(UploadMasks(masks, n_mask_words * sizeof(uint32_t)));
  }
  int32_t counts_at = 0, forbidden_at = 0, bias_at = 0;
  const uint32_t* next_mask = masks_.As<uint32_t>();
  for (size_t i = 0; i < n; ++i) {
    const SampleRow& row = args.rows[first + i];
    SC_CHECK(row.n_logprobs <= kMaxTop && row.given_token < args.vocab);
    SC_CHECK(row.allowed.empty() ||
             row.allowed.size() == static_cast<size_t>(CeilDiv(args.vocab, 32)));
    int32_t values_at = bias_at;
    Append(row.bias_values, bias_values, &values_at);
    rows[i] = {.seed = row.seed,
               .position = row.position,
               .out = &args.out[first + i],
               .allowed = row.allowed.empty() ? nullptr : next_mask,
               .params = row.params,
               .first_count = Append(row.counts, counts, &counts_at),
               .n_counts = static_cast<int32_t>(row.counts.size()),
               .first_forbidden = Append(row.forbidden, forbidden, &forbidden_at),
               .n_forbidden = static_cast<int32_t>(row.forbidden.size()),
               .first_bias = Append(row.bias_ids, bias_ids, &bias_at),
               .n_bias = static_cast<int32_t>(row.bias_ids.size()),
               .given_token = row.given_token,
               .slot = row.slot,
               .n_logprobs = row.n_logprobs};
    next_mask += row.allowed.size();
  }
  SC_RETURN_IF_ERROR(
      ToStatus(Sample(*stream_, {.logits = args.logits + first * static_cast<size_t>(args.vocab),
                                 .vocab = args.vocab,
                                 .n_rows = static_cast<int32_t>(n),
                                 .rows = rows,
                                 .counts = counts,
                                 .forbidden = forbidden,
                                 .bias_ids = bias_ids,
                                 .bias_values = bias_values,
                                 .originals = originals,
                                 .n_counts = counts_at,
                                 .n_forbidden = forbidden_at,
                                 .sampled = args.sampled}),
               "Sample"));
  if (n_mask_words == 0) return absl::OkStatus();
  return ToStatus(cudaEventRecord(sampled_, stream_->handle), "Sample");
}

absl::Status SampleRowStager::Init() {
  constexpr auto kWhat = "no stream for masks";
  SC_RETURN_IF_ERROR(ToStatus(cudaStreamCreateWithFlags(&copies_, cudaStreamNonBlocking), kWhat));
  SC_RETURN_IF_ERROR(ToStatus(cudaEventCreateWithFlags(&copied_, cudaEventDisableTiming), kWhat));
  SC_RETURN_IF_ERROR(ToStatus(cudaEventCreateWithFlags(&sampled_, cudaEventDisableTiming), kWhat));
  SC_ASSIGN_OR_RETURN(masks_, AllocateDevice(HostRing::kSegmentBytes));
  return absl::OkStatus();
}

absl::Status SampleRowStager::UploadMasks(const void* staged, size_t bytes) {
  const auto check = [](cudaError_t error) { return ToStatus(error, "cannot copy masks"); };
  SC_RETURN_IF_ERROR(check(cudaStreamWaitEvent(copies_, sampled_, 0)));
  SC_RETURN_IF_ERROR(check(disturbance_->Delay({.handle = copies_})));
  SC_RETURN_IF_ERROR(
      check(cudaMemcpyAsync(masks_.data.get(), staged, bytes, cudaMemcpyHostToDevice, copies_)));
  SC_RETURN_IF_ERROR(check(cudaEventRecord(copied_, copies_)));
  return check(cudaStreamWaitEvent(stream_->handle, copied_, 0));
}

}  // namespace stagecoach::kernels::cuda
