#include "kernels/cuda/device/side_copies.h"

#include "common/status.h"
#include "kernels/cuda/device/device_buffer.h"

namespace stagecoach::kernels::cuda {

SideCopies::~SideCopies() {
  if (copies_ != nullptr) {
    cudaStreamSynchronize(copies_);
    cudaStreamDestroy(copies_);
  }
  for (const cudaEvent_t event : {before_, done_}) {
    if (event != nullptr) cudaEventDestroy(event);
  }
}

absl::Status SideCopies::Init() {
  for (cudaEvent_t* const event : {&before_, &done_}) {
    SC_RETURN_IF_ERROR(
        ToStatus(cudaEventCreateWithFlags(event, cudaEventDisableTiming), "no event"));
  }
  return ToStatus(cudaStreamCreateWithFlags(&copies_, cudaStreamNonBlocking), "no stream");
}

absl::Status SideCopies::Copy(const Stream& stream, std::span<const HostCopy> copies) {
  if (copies_ == nullptr) SC_RETURN_IF_ERROR(Init());
  SC_RETURN_IF_ERROR(ToStatus(cudaEventRecord(before_, stream.handle), "the GPU failed"));
  SC_RETURN_IF_ERROR(ToStatus(cudaStreamWaitEvent(copies_, before_, 0), "the GPU failed"));
  for (const HostCopy& copy : copies) {
    SC_RETURN_IF_ERROR(ToStatus(
        cudaMemcpyAsync(copy.device, copy.host, copy.bytes, cudaMemcpyHostToDevice, copies_),
        "cannot copy to the GPU"));
  }
  return ToStatus(cudaEventRecord(done_, copies_), "the GPU failed");
}

absl::Status SideCopies::Join(const Stream& stream) {
  if (copies_ == nullptr) return absl::OkStatus();
  return ToStatus(cudaStreamWaitEvent(stream.handle, done_, 0), "the GPU failed");
}

absl::Status SideCopies::Synchronize() {
  if (copies_ == nullptr) return absl::OkStatus();
  return ToStatus(cudaStreamSynchronize(copies_), "the GPU failed");
}

}  // namespace stagecoach::kernels::cuda
