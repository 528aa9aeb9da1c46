#include "worker/transport/nccl/nccl_transport.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "common/check.h"
#include "common/nccl_version.h"
#include "common/status.h"
#include "worker/transport/nccl/link_offer.h"
#include "worker/transport/nccl/nccl_log.h"

namespace stagecoach::worker {
namespace {

using kernels::cuda::AllocateDevice;
using kernels::cuda::AllocatePinned;

constexpr std::chrono::milliseconds kProgressInterval(200);

std::string HostName() {
  char host[64] = "";
  gethostname(host, sizeof(host) - 1);
  return host;
}

}  // namespace

NcclTransport::NcclTransport(NcclTransportOptions options, Transport* host)
    : options_(std::move(options)),
      host_(host),
      closed_(absl::FailedPreconditionError("the stage has not joined a pipeline")) {}

NcclTransport::~NcclTransport() {
  Close(absl::CancelledError("the stage has ended"));
  EndEpoch();
}

absl::Status NcclTransport::ConnectAlone() {
  NcclLog::Redirect();
  SC_ASSIGN_OR_RETURN(const NcclApi* const api, options_.load_api());
  NcclLink::Options alone{.api = api, .device = options_.device, .name = "no peer", .n_ranks = 1};
  if (const NcclResult result = api->get_unique_id(&alone.id); result != kNcclSuccess) {
    return absl::UnavailableError(api->get_error_string(result));
  }
  SC_ASSIGN_OR_RETURN(const std::unique_ptr<NcclLink> link, NcclLink::Make(alone));
  return link->Connect(NcclLink::Clock::now() + options_.join_timeout);
}

void NcclTransport::WarmUp() {
  const absl::Status connected = ConnectAlone();
  // OfferLinks reports what is missing.
  if (!connected.ok()) spdlog::debug("NCCL is not warm: {}", std::string(connected.message()));
}

absl::Status NcclTransport::Prepare(const LinkSizes& sizes) {
  Close(absl::AbortedError("the stage is loading again"));
  EndEpoch();
  memory_ = {.sizes = sizes};
  reserve_ = {};
  if (sizes.n_stages < 2) return absl::OkStatus();
  NcclLog::Redirect();
  if (!options_.load_api().ok()) return absl::OkStatus();  // OfferLinks reports the error
  cudaSetDevice(options_.device);
  const bool is_first = sizes.stage == 0, is_last = sizes.stage + 1 == sizes.n_stages;
  if (!is_last) {
    SC_ASSIGN_OR_RETURN(memory_.hidden_out,
                        AllocateDevice(kHiddenSlots * MessageBytes(sizes.hidden_bytes)));
    SC_ASSIGN_OR_RETURN(memory_.meta_out, AllocateDevice(kMetaSlots * kMetaSlotBytes));
    SC_ASSIGN_OR_RETURN(memory_.meta_out_host, AllocatePinned(kMetaSlots * kMetaSlotBytes));
  }
  if (!is_first) {
    SC_ASSIGN_OR_RETURN(memory_.hidden_in,
                        AllocateDevice(kHiddenSlots * MessageBytes(sizes.hidden_bytes)));
    SC_ASSIGN_OR_RETURN(memory_.meta_in, AllocateDevice(kMetaSlots * kMetaSlotBytes));
    SC_ASSIGN_OR_RETURN(memory_.meta_in_host, AllocatePinned(kMetaSlots * kMetaSlotBytes));
  }
  if (is_first) {
    SC_ASSIGN_OR_RETURN(memory_.tokens_in,
                        AllocateDevice(kTokensInSlots * MessageBytes(sizes.token_bytes)));
  }
  if (is_last) {
    SC_ASSIGN_OR_RETURN(memory_.tokens_out,
                        AllocateDevice(kTokensOutSlots * MessageBytes(sizes.token_bytes)));
  }
  SC_ASSIGN_OR_RETURN(memory_.broken_step, AllocateDevice(sizeof(uint64_t)));
  SC_ASSIGN_OR_RETURN(memory_.broken_step_host, AllocatePinned(sizeof(uint64_t)));
  SC_ASSIGN_OR_RETURN(reserve_, AllocateDevice(nccl_has_memory_ ? options_.reserved_again_bytes
                                                                : options_.reserved_bytes));
  return absl::OkStatus();
}

absl::StatusOr<LinkOffer> NcclTransport::OfferLinks(uint64_t epoch, int32_t stage,
                                                    int32_t n_stages) {
  NcclLog::Redirect();
  const absl::StatusOr<const NcclApi*> api = options_.load_api();
  if (!api.ok()) {
    spdlog::warn("hidden states go through the host, which is slower: {}",
                 std::string(api.status().message()));
    return LinkOffer{};
  }
  LinkTerms terms{.epoch = epoch, .nccl_version = 0, .host = HostName(), .ids = {}};
  (*api)->get_version(&terms.nccl_version);
  const auto make = [&](size_t n_ids, std::string* bytes) -> absl::Status {
    terms.ids.resize(n_ids);
    for (NcclUniqueId& id : terms.ids) {
      if (const NcclResult result = (*api)->get_unique_id(&id); result != kNcclSuccess) {
        return absl::UnavailableError(
            fmt::format("NCCL cannot create ids for links: {}: check that there is a network "
                        "interface that it may use (--nccl-interface)",
                        (*api)->get_error_string(result)));
      }
    }
    *bytes = EncodeLinkTerms(terms);
    return absl::OkStatus();
  };
  LinkOffer offer{.ready = true, .next = {}, .tokens = {}};
  if (stage + 1 < n_stages) SC_RETURN_IF_ERROR(make(kNextIds, &offer.next));
  if (stage == 0 && n_stages > 1) SC_RETURN_IF_ERROR(make(kTokensIds, &offer.tokens));
  return offer;
}

absl::Status NcclTransport::Join(const Neighbours& neighbours) {
  Close(absl::AbortedError("the stage is joining again"));
  EndEpoch();
  reserve_ = {};
  SC_RETURN_IF_ERROR(host_->Join(neighbours));
  {
    const MutexLock lock(mutex_);
    closed_ = absl::OkStatus();
    description_ = "host";
  }
  const bool has_terms = !neighbours.next_link.empty() || !neighbours.previous_link.empty();
  if (neighbours.n_stages < 2) return absl::OkStatus();
  if (!has_terms || memory_.sizes.n_stages != neighbours.n_stages) {
    spdlog::warn(
        "stage {} of {}: hidden states go through the host, because a stage cannot use NCCL",
        neighbours.stage, neighbours.n_stages);
    return absl::OkStatus();
  }
  absl::Status connected = ConnectLinks(neighbours);
  if (!connected.ok()) {
    connected = OrReason(std::move(connected));
    EndEpoch();
    return connected;
  }
  Report(neighbours);
  return absl::OkStatus();
}

absl::Status NcclTransport::ConnectLinks(const Neighbours& neighbours) {
  SC_ASSIGN_OR_RETURN(const NcclApi* const api, options_.load_api());
  int version = 0;
  api->get_version(&version);
  SC_ASSIGN_OR_RETURN(
      std::unique_ptr<NcclEpoch> epoch,
      NcclEpoch::Make({.api = api,
                       .nccl_version = version,
                       .device = options_.device,
                       .compute = options_.compute,
                       .place = neighbours,
                       .memory = memory_,
                       .longest_step = options_.longest_step,
                       .disturbance_seed = options_.disturbance_seed,
                       .poison = options_.poison,
                       .on_failure = [this](absl::Status status) { Close(std::move(status)); }}));
  {
    const MutexLock lock(mutex_);
    if (!closed_.ok()) return closed_;
    epoch_ = std::move(epoch);
  }
  // The host's channels carry no messages here. Their end means that a neighbour has ended.
  host_watch_ = std::thread([this] {
    absl::StatusOr<Message> message = host_->Receive(Channel::kMetadata);
    Close(message.ok() ? absl::InternalError("metadata came on the wrong channel")
                       : message.status());
  });
  SC_RETURN_IF_ERROR(epoch_->Connect(NcclLink::Clock::now() + options_.join_timeout));
  nccl_has_memory_ = true;
  {
    const MutexLock lock(mutex_);
    std::string paths = NcclLog::Paths().Names();
    if (paths.empty()) paths = fmt::format("path not known: {}", NcclLog::WhyUnknown());
    description_ = fmt::format("NCCL {} ({}), {:.3g} GB/s", NcclVersionName(version), paths,
                               epoch_->hidden_gb_per_s());
  }
  progress_watch_ = std::thread([this] { WatchProgress(); });
  return absl::OkStatus();
}

void NcclTransport::Report(const Neighbours& place) const {
  spdlog::info("links: {}", Description());
  for (const std::string& slow :
       SlowLinks(NcclLog::Paths(), place.stage, place.n_stages, epoch_->previous_is_here())) {
    spdlog::warn("{}", slow);
  }
}

void NcclTransport::WatchProgress() {
  const auto interval = std::min(kProgressInterval, options_.longest_step / 4);
  cudaSetDevice(options_.device);
  for (;;) {
    {
      MutexLock lock(mutex_);
      if (changed_.wait_for(lock, interval,
                            [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return !closed_.ok(); }))
        return;
    }
    if (absl::Status status = epoch_->CheckProgress(); !status.ok()) Close(std::move(status));
    if (options_.on_progress_checked) options_.on_progress_checked();
  }
}

void NcclTransport::EndEpoch() {
  if (host_watch_.joinable()) host_watch_.join();
  if (progress_watch_.joinable()) progress_watch_.join();
  std::unique_ptr<NcclEpoch> epoch;
  {
    const MutexLock lock(mutex_);
    epoch = std::move(epoch_);
  }
}

void NcclTransport::Close(absl::Status reason) {
  const MutexLock lock(mutex_);
  // Tell the neighbours first: NCCL reports a message that was cut off as done, and a neighbour
  // that does not know of the abort would use it as complete. Close the host even if closed_ is
  // set, because a Join may have reached only the host part.
  host_->Close(reason);
  if (!closed_.ok()) return;
  closed_ = std::move(reason);
  if (epoch_ != nullptr) epoch_->Abort(closed_);
  changed_.notify_all();
}

absl::Status NcclTransport::Closed() const {
  const MutexLock lock(mutex_);
  return closed_;
}

absl::Status NcclTransport::OrReason(absl::Status status) {
  if (status.ok()) return status;
  Close(status);
  return Closed();
}

absl::Status NcclTransport::Send(Channel channel, uint64_t step, std::string payload) {
  if (epoch_ == nullptr) return host_->Send(channel, step, std::move(payload));
  SC_CHECK(channel == Channel::kMetadata && epoch_->meta_out() != nullptr);
  return OrReason(epoch_->meta_out()->Send(step, payload));
}

absl::StatusOr<Message> NcclTransport::Receive(Channel channel) {
  if (epoch_ == nullptr) return host_->Receive(channel);
  SC_CHECK(channel == Channel::kMetadata && epoch_->meta_in() != nullptr);
  absl::StatusOr<Message> message = epoch_->meta_in()->Receive();
  if (!message.ok()) return OrReason(message.status());
  return message;
}

DeviceChannels* NcclTransport::device() { return epoch_ == nullptr ? nullptr : this; }

std::string NcclTransport::Description() const {
  const MutexLock lock(mutex_);
  return description_;
}

ChannelCounters NcclTransport::Counters(Channel channel) const {
  const MutexLock lock(mutex_);
  return epoch_ == nullptr ? host_->Counters(channel) : epoch_->Counters(channel);
}

absl::Status NcclTransport::Expect(uint64_t step, size_t hidden_bytes, bool has_tokens) {
  if (hidden_bytes > 0) {
    SC_RETURN_IF_ERROR(OrReason(epoch_->hidden_in()->Expect(step, hidden_bytes)));
  }
  if (!has_tokens) return absl::OkStatus();
  return OrReason(epoch_->tokens_in()->Expect(step, memory_.sizes.token_bytes));
}

absl::Status NcclTransport::Stamp(uint64_t step, StepPoint point) {
  cudaSetDevice(options_.device);
  return OrReason(epoch_->timer().Stamp(step, point, options_.compute));
}

absl::StatusOr<bool> NcclTransport::ReceiveHidden(uint64_t step, void* hidden, size_t bytes) {
  absl::StatusOr<bool> arrived = epoch_->hidden_in()->Take(step, hidden, bytes);
  if (!arrived.ok()) return OrReason(arrived.status());
  return arrived;
}

absl::Status NcclTransport::ReceiveTokens(uint64_t step, int32_t* sampled) {
  return OrReason(epoch_->tokens_in()->TakeLatest(step, sampled, memory_.sizes.token_bytes));
}

absl::Status NcclTransport::SendHidden(uint64_t step, const void* hidden, size_t bytes) {
  return OrReason(epoch_->hidden_out()->Put(step, hidden, bytes));
}

absl::Status NcclTransport::SendTokens(uint64_t step, const int32_t* sampled) {
  return OrReason(epoch_->tokens_out()->Put(step, sampled, memory_.sizes.token_bytes));
}

absl::StatusOr<StepTimes> NcclTransport::Finish(uint64_t step) {
  // Ignore work that ended because the links were aborted.
  SC_RETURN_IF_ERROR(Closed());
  SC_RETURN_IF_ERROR(OrReason(epoch_->CheckMessages()));
  cudaSetDevice(options_.device);
  absl::StatusOr<StepTimes> times = epoch_->timer().Times(step);
  if (!times.ok()) return OrReason(times.status());
  return times;
}

}  // namespace stagecoach::worker
