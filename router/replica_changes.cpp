#include "router/replica_changes.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>
#include <sys/socket.h>

#include <algorithm>
#include <chrono>
#include <future>
#include <utility>

#include "absl/strings/str_split.h"
#include "common/fd_store/fd_packet.h"
#include "common/status.h"

namespace stagecoach::router {
namespace {

constexpr std::chrono::seconds kSnapshotTimeout(5);
constexpr std::string_view kOk = "ok ";
constexpr std::string_view kFailed = "failed ";

absl::Status Stopping() { return absl::CancelledError("the router is shutting down"); }

}  // namespace

std::vector<v1::ReplicaStatus> ReplicaChanges::List() const {
  std::vector<v1::ReplicaStatus> replicas;
  const Pipelines& pipelines = *context_.pipelines;
  for (size_t i = 0; i < pipelines.size(); ++i) {
    if (pipelines[i].is_left()) continue;
    v1::ReplicaStatus& status = replicas.emplace_back();
    status.set_replica(static_cast<uint32_t>(i));
    for (const std::string& address : pipelines[i].addresses()) status.add_addresses(address);
    status.set_draining(context_.scheduler->IsDraining(i));
    status.set_trouble(pipelines[i].Trouble());
    std::future<SchedulerSnapshot> snapshot = context_.scheduler->scheduler(i).Snapshot();
    if (snapshot.wait_for(kSnapshotTimeout) != std::future_status::ready) continue;
    const SchedulerSnapshot taken = snapshot.get();
    status.set_running(taken.running);
    status.set_waiting(taken.waiting);
  }
  return replicas;
}

absl::Status ReplicaChanges::Drain(size_t replica, bool move) {
  {
    const MutexLock lock(changing_);
    if (stop_.stop_requested()) return Stopping();
    if (replica >= context_.pipelines->size()) {
      return absl::NotFoundError(fmt::format("there is no replica {}", replica));
    }
  }
  ServedPipeline& pipeline = (*context_.pipelines)[replica];
  spdlog::info("replica {} drains: {}", replica,
               move ? "its sequences move at once" : "its sequences end first");
  std::function<void()> lose;
  if (move) lose = [&pipeline] { pipeline.Leave(); };
  SC_RETURN_IF_ERROR(context_.scheduler->Close(replica, lose, stop_.get_token()));
  const MutexLock lock(changing_);
  if (stop_.stop_requested()) return Stopping();
  pipeline.Release();
  spdlog::info("replica {} is drained", replica);
  context_.on_left(absl::UnavailableError("every replica is drained or lost for good"));
  return absl::OkStatus();
}

absl::StatusOr<size_t> ReplicaChanges::Add(std::vector<std::string> addresses) {
  const MutexLock lock(changing_);
  if (stop_.stop_requested()) return Stopping();
  if (addresses.empty()) {
    SC_ASSIGN_OR_RETURN(addresses, AskLauncher());
  }
  SC_RETURN_IF_ERROR(CheckWorkers(addresses));
  if (const absl::Status status = SetUp(addresses); !status.ok()) {
    context_.launcher_lines->SayDrained(addresses);
    return status;
  }
  const size_t replica = context_.pipelines->size() - 1;
  context_.launcher_lines->SayAdded(addresses);
  spdlog::info("replica {} is added, and gets requests", replica);
  return replica;
}

const ServedPipeline& ReplicaChanges::Present() const {
  const Pipelines& pipelines = *context_.pipelines;
  size_t i = 0;
  while (i + 1 < pipelines.size() && pipelines[i].is_left()) ++i;
  return pipelines[i];
}

absl::Status ReplicaChanges::CheckWorkers(const std::vector<std::string>& addresses) const {
  const size_t n_stages = Present().addresses().size();
  if (addresses.size() != n_stages) {
    return absl::InvalidArgumentError(fmt::format(
        "a replica has {} stages, but {} workers are named", n_stages, addresses.size()));
  }
  for (size_t i = 0; i < context_.pipelines->size(); ++i) {
    const ServedPipeline& pipeline = (*context_.pipelines)[i];
    if (pipeline.is_left()) continue;
    for (const std::string& used : pipeline.addresses()) {
      if (std::find(addresses.begin(), addresses.end(), used) == addresses.end()) continue;
      return absl::InvalidArgumentError(
          fmt::format("the worker at {} serves replica {} already", used, i));
    }
  }
  return absl::OkStatus();
}

absl::Status ReplicaChanges::SetUp(const std::vector<std::string>& addresses) {
  const Pipeline& like = Present().pipeline();
  PipelineOptions options = context_.options;
  options.addresses = addresses;
  options.terminal = false;
  // The same plan of blocks: a worker that counted free memory now would find less.
  options.flags.config.set_max_model_len(like.kv.max_model_len);
  const auto least =
      std::min_element(like.stages.begin(), like.stages.end(),
                       [](const auto& a, const auto& b) { return a.kv_bytes < b.kv_bytes; });
  options.flags.config.set_kv_memory_bytes(least->kv_bytes);
  SC_ASSIGN_OR_RETURN(Pipeline set_up, SetUpPipeline(*context_.spec, options, stop_.get_token()));
  SC_RETURN_IF_ERROR(CheckAlike(like.stages, set_up.stages));
  std::unique_ptr<ServedPipeline> made = context_.make(options, std::move(set_up));
  ServedPipeline& pipeline = *made;
  const absl::Status started =
      context_.scheduler->Add({.config = pipeline.MakeSchedulerConfig(),
                               .client = pipeline.client(),
                               .is_stalled = [&pipeline] { return pipeline.is_stalled(); }});
  if (!started.ok()) {
    context_.on_left(started);
    return started;
  }
  const size_t replica = context_.pipelines->size();
  context_.pipelines->Append(std::move(made));
  context_.metrics->Add(
      pipeline.Export(&context_.scheduler->scheduler(replica), context_.model_name));
  return absl::OkStatus();
}

absl::StatusOr<std::vector<std::string>> ReplicaChanges::AskLauncher() {
  if (!context_.launcher.valid()) {
    return absl::FailedPreconditionError(
        "no launcher can start workers for this router: start them, and name them with --workers");
  }
  const std::stop_callback cancel(stop_.get_token(),
                                  [this] { shutdown(context_.launcher.get(), SHUT_RDWR); });
  context_.launcher_lines->AskToAdd(context_.pipelines->size());
  SC_ASSIGN_OR_RETURN(const Packet packet, ReceivePacket(context_.launcher));
  const std::string_view text = packet.bytes;
  if (text.starts_with(kOk)) return absl::StrSplit(packet.bytes.substr(kOk.size()), ' ');
  return absl::UnavailableError(packet.bytes.substr(std::min(text.size(), kFailed.size())));
}

void ReplicaChanges::Stop() {
  stop_.request_stop();
  const MutexLock lock(changing_);  // waits for a change that goes on
}

}  // namespace stagecoach::router
