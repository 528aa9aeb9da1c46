// Replicas that are added and released while a cluster serves.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <csignal>
#include <utility>

#include "cli/launch/cluster.h"
#include "cli/launch/fields.h"
#include "cli/launch/program_args.h"
#include "common/fd_store/fd_packet.h"

namespace stagecoach::launch {

std::vector<size_t> Cluster::Replicas() const {
  std::vector<size_t> firsts;
  for (size_t i = 0; i < places_.size(); ++i) {
    const size_t first = i * options_.n_stages + (i < options_.serve.replicas ? 0 : 1);
    if (!children_[first].is_released) firsts.push_back(first);
  }
  return firsts;
}

size_t Cluster::FirstOfReplica(size_t index) const {
  const size_t begin = index < router() ? 0 : router() + 1;
  return index - (index - begin) % options_.n_stages;
}

void Cluster::UpdateRouterArgs() {
  if (options_.serve.journal.place.empty()) return;
  std::vector<std::string> addresses;
  for (const size_t first : Replicas()) {
    if (new_replica_ && new_replica_->first == first) continue;
    addresses.insert(addresses.end(), addresses_.begin() + static_cast<std::ptrdiff_t>(first),
                     addresses_.begin() + static_cast<std::ptrdiff_t>(first + options_.n_stages));
  }
  bound_.replicas = static_cast<uint32_t>(addresses.size() / options_.n_stages);
  children_[router()].spec.args = RouterArgs(options_, bound_, addresses);
}

void Cluster::Release(size_t index) {
  Child& child = children_[index];
  {
    const MutexLock lock(mutex_);
    child.is_given_up = true;
    child.is_released = true;
    if (child.process == nullptr) child.exit.emplace();  // it could not be started
  }
  addresses_[index].clear();  // another worker may get it
  judge_.Forget(index);
  if (child.process != nullptr) child.process->Signal(SIGTERM);
}

void Cluster::AnswerRouter(const std::string& text) {
  new_replica_.reset();
  SendPacket(router_socket_, text).IgnoreError();  // a router that has ended needs no answer
}

void Cluster::StartNewReplica() {
  if (!new_replica_ || new_replica_->first) return;
  std::vector<bool> is_taken(places_.size());
  for (size_t i = 0; i < places_.size(); ++i) {
    const size_t first = i * options_.n_stages + (i < options_.serve.replicas ? 0 : 1);
    for (size_t worker = first; worker < first + options_.n_stages; ++worker) {
      const MutexLock lock(mutex_);
      // The place of one that is about to end will be free.
      if (children_[worker].is_released && !children_[worker].exit) return;
      if (!children_[worker].is_released) is_taken[places_[i]] = true;
    }
  }
  const auto place =
      static_cast<uint32_t>(std::find(is_taken.begin(), is_taken.end(), false) - is_taken.begin());
  const uint32_t first_place = place * options_.n_stages;
  if (!options_.devices.empty() && first_place >= options_.devices.size()) {
    return AnswerRouter("failed --devices names no GPU for another replica: drain one first");
  }
  const size_t first = children_.size();
  if (first + options_.n_stages > children_.capacity()) {
    return AnswerRouter("failed too many replicas were added: start the server again");
  }
  new_replica_->first = first;
  places_.push_back(place);
  for (uint32_t stage = 0; stage < options_.n_stages; ++stage) {
    addresses_.emplace_back();
    Child& child = children_.emplace_back();
    child.spec = {.program = options_.program_dir + "/stagecoach-worker",
                  .args = WorkerArgs(options_, first_place + stage),
                  .input = secret_};
    child.log =
        std::make_unique<ChildLog>(fmt::format("replica {} worker {}", new_replica_->number, stage),
                                   options_.echo_logs, options_.log_format());
  }
  for (size_t i = first; i < children_.size(); ++i) {
    if (const absl::Status status = Spawn(i); !status.ok()) return FailNewReplica(status);
  }
}

void Cluster::FailNewReplica(const absl::Status& why) {
  if (!new_replica_ || !new_replica_->first) return;
  const size_t first = *new_replica_->first;
  for (size_t i = first; i < first + options_.n_stages; ++i) Release(i);
  AnswerRouter("failed " + std::string(why.message()));
}

void Cluster::OnNewWorker(const Event& event) {
  if (event.kind == Event::kExit) {
    const Child& child = children_[event.child];
    ChildExit exit;
    {
      const MutexLock lock(mutex_);
      exit = child.exit.value_or(ChildExit{});
    }
    if (!child.is_released) return FailNewReplica(absl::UnavailableError(child.log->Cause(exit)));
    child.log->Say(fmt::format("its replica has left; the process {}", exit.Describe()));
    return StartNewReplica();
  }
  if (event.kind != Event::kLine || !event.line.starts_with("listening ")) return;
  if (!new_replica_ || !new_replica_->first || children_[event.child].is_released) return;
  const absl::StatusOr<std::string> address = Field(event.line, "grpc");
  if (!address.ok()) return FailNewReplica(address.status());
  addresses_[event.child] = *address;
  children_[event.child].spec.args[1] = *address;
  const auto begin = addresses_.begin() + static_cast<std::ptrdiff_t>(*new_replica_->first);
  if (std::find(begin, addresses_.end(), "") != addresses_.end()) return;
  AnswerRouter(fmt::format("ok {}", fmt::join(begin, addresses_.end(), " ")));
}

}  // namespace stagecoach::launch
