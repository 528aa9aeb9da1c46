#include "worker/transport/nccl/meta_channel.h"

#include <fmt/format.h>

#include <utility>

#include "common/status.h"

namespace stagecoach::worker {

using kernels::cuda::ToStatus;

absl::StatusOr<std::unique_ptr<MetaSender>> MetaSender::Make(NcclLink* link, int32_t device,
                                                             uint64_t epoch,
                                                             kernels::Buffer device_memory,
                                                             kernels::Buffer host_memory) {
  std::unique_ptr<MetaSender> sender(
      new MetaSender(link, device, epoch, std::move(device_memory), std::move(host_memory)));
  SC_RETURN_IF_ERROR(
      ToStatus(cudaStreamCreateWithFlags(&sender->copies_, cudaStreamNonBlocking), "no stream"));
  SC_ASSIGN_OR_RETURN(sender->copied_, CudaEvent::Make(CudaEvent::Use::kOrder));
  sender->left_.resize(kMetaSlots);
  for (CudaEvent& left : sender->left_) {
    SC_ASSIGN_OR_RETURN(left, CudaEvent::Make(CudaEvent::Use::kWait));
  }
  return sender;
}

MetaSender::~MetaSender() {
  if (copies_ == nullptr) return;
  cudaStreamSynchronize(copies_);
  cudaStreamDestroy(copies_);
}

absl::Status MetaSender::Send(uint64_t step, const std::string& message) {
  cudaSetDevice(device_);
  for (size_t part = 0; part < MetaSlotCount(message.size()); ++part) {
    uint64_t index = 0;
    {
      const MutexLock lock(mutex_);
      index = n_sent_;
      sending_ = true;
    }
    const size_t at = index % kMetaSlots;
    SC_RETURN_IF_ERROR(left_[at].Wait());
    char* const host = host_memory_.As<char>() + at * kMetaSlotBytes;
    char* const device = device_memory_.As<char>() + at * kMetaSlotBytes;
    const size_t n_bytes = WriteMetaSlot(epoch_, step, index, message, part, host);
    SC_RETURN_IF_ERROR(
        ToStatus(cudaMemcpyAsync(device, host, n_bytes, cudaMemcpyHostToDevice, copies_),
                 "cannot copy metadata"));
    SC_RETURN_IF_ERROR(copied_.Record(copies_));
    SC_RETURN_IF_ERROR(copied_.Precede(link_->stream()));
    SC_RETURN_IF_ERROR(link_->Send(device, kMetaSlotBytes));
    SC_RETURN_IF_ERROR(left_[at].Record(link_->stream()));
    const MutexLock lock(mutex_);
    sending_ = false;
    ++n_sent_;
    ++counters_.sent_frames;
    counters_.sent_bytes += kMetaSlotBytes;
  }
  return absl::OkStatus();
}

absl::Status MetaSender::CheckProgress(std::chrono::milliseconds timeout) {
  const MutexLock lock(mutex_);
  const uint64_t n_done = Progress::CountDone(
      n_sent_, kMetaSlots, [this](uint64_t slot) { return left_[slot].IsReached(); });
  if (progress_.Stalled(n_sent_ + sending_, n_done, Progress::Clock::now()) < timeout) {
    return absl::OkStatus();
  }
  return absl::DeadlineExceededError(
      fmt::format("{}: nothing was sent for {} ms", link_->name(), timeout.count()));
}

ChannelCounters MetaSender::counters() const {
  const MutexLock lock(mutex_);
  return counters_;
}

absl::StatusOr<std::unique_ptr<MetaReceiver>> MetaReceiver::Make(Options options) {
  std::unique_ptr<MetaReceiver> receiver(new MetaReceiver(std::move(options)));
  SC_ASSIGN_OR_RETURN(receiver->here_, CudaEvent::Make(CudaEvent::Use::kWait));
  return receiver;
}

absl::StatusOr<Message> MetaReceiver::Receive() {
  if (!thread_.joinable()) thread_ = std::thread([this] { Run(); });
  return messages_.Pop();
}

MetaReceiver::~MetaReceiver() {
  Close(absl::CancelledError("the link has ended"));
  if (thread_.joinable()) thread_.join();
}

void MetaReceiver::Run() {
  cudaSetDevice(options_.device);
  for (uint64_t index = 0;; ++index) {
    if (const absl::Status received = ReceiveSlot(index); !received.ok()) {
      options_.on_failure(received);
      return;
    }
  }
}

absl::Status MetaReceiver::ReceiveSlot(uint64_t index) {
  const size_t at = index % kMetaSlots;
  char* const host = options_.host_memory.As<char>() + at * kMetaSlotBytes;
  char* const device = options_.device_memory.As<char>() + at * kMetaSlotBytes;
  const cudaStream_t stream = options_.link->stream();
  SC_RETURN_IF_ERROR(options_.link->Receive(device, kMetaSlotBytes));
  // Wait before copying: a copy queued behind the receive would block the copies of other streams.
  SC_RETURN_IF_ERROR(here_.Record(stream));
  SC_RETURN_IF_ERROR(here_.Wait());
  SC_RETURN_IF_ERROR(options_.link->Alive());
  SC_RETURN_IF_ERROR(
      ToStatus(cudaMemcpyAsync(host, device, kMetaSlotBytes, cudaMemcpyDeviceToHost, stream),
               "cannot copy metadata"));
  SC_RETURN_IF_ERROR(here_.Record(stream));
  SC_RETURN_IF_ERROR(here_.Wait());
  // After an abort the slot's content is undefined.
  SC_RETURN_IF_ERROR(options_.link->Alive());
  SC_ASSIGN_OR_RETURN(std::optional<Message> message, reader_.Take({host, kMetaSlotBytes}));
  {
    const MutexLock lock(mutex_);
    ++counters_.received_frames;
    counters_.received_bytes += kMetaSlotBytes;
  }
  return message.has_value() ? messages_.Push(*std::move(message)) : absl::OkStatus();
}

ChannelCounters MetaReceiver::counters() const {
  const MutexLock lock(mutex_);
  return counters_;
}

}  // namespace stagecoach::worker
