#include "worker/service/stage_service.h"

#include <fmt/format.h>
#include <grpcpp/grpcpp.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <future>
#include <new>
#include <thread>
#include <utility>

#include "common/mutex.h"
#include "common/rpc/status.h"
#include "common/status.h"
#include "common/text/grammar_cache.h"
#include "common/unix_time.h"
#include "common/version.h"
#include "worker/service/load_request.h"
#include "worker/service/step_session.h"

namespace stagecoach::worker {
namespace {

using Clock = std::chrono::steady_clock;

// Time without progress after which the threads of an ended epoch are considered blocked.
constexpr auto kHeldLimit = std::chrono::seconds(10);
constexpr auto kEndedInterval = std::chrono::milliseconds(2);
// Time for a router that has lost the worker to receive the news.
constexpr auto kRevokeGrace = std::chrono::seconds(1);

// Converts exceptions of `call` to a status. They must not make the worker unusable for the next
// router.
template <typename Call>
absl::Status Caught(const Call& call) {
  try {
    return call();
  } catch (const std::bad_alloc&) {
    return absl::ResourceExhaustedError("the process is out of memory");
  } catch (const std::exception& error) {
    return absl::InternalError(error.what());
  }
}

}  // namespace

StageService::StageService(kernels::Ops* ops, int32_t n_threads, Transport* transport,
                           ModelLoader load, StepObservers observers,
                           std::function<void(absl::Status)> on_lost, FdStoreClient* store,
                           const std::string& tuning_folder)
    : ops_(ops),
      n_threads_(n_threads),
      transport_(transport),
      load_(std::move(load)),
      observers_(observers),
      started_unix_ns_(UnixNanoseconds()),
      on_lost_(std::move(on_lost)),
      kept_(ops, store) {
  if (!tuning_folder.empty()) tuning_.emplace(tuning_folder, *ops);
}

StageService::~StageService() {
  compiling_.Abandon();
  StopExecutor(absl::UnavailableError("the worker is shutting down")).IgnoreError();
}

const char* StageService::Name(State state) {
  switch (state) {
    case State::kEmpty:
      return "holds no layers yet (call Load first)";
    case State::kLoading:
      return "is loading";
    case State::kLoaded:
      return "has not joined a pipeline (call Join first)";
    case State::kJoining:
      return "is joining a pipeline";
    case State::kJoined:
      return "has joined a pipeline";
    case State::kStepping:
      return "is in use by a router";
  }
  return "?";
}

absl::Status StageService::CheckStateLocked(std::initializer_list<State> possible,
                                            const char* what) const {
  if (shut_down_) return absl::UnavailableError("the worker is shutting down");
  if (std::find(possible.begin(), possible.end(), state_) == possible.end()) {
    return absl::FailedPreconditionError(
        fmt::format("{} is not possible now: this worker {}", what, Name(state_)));
  }
  return absl::OkStatus();
}

void StageService::SetStateLocked(State state) {
  state_ = state;
  state_changed_.notify_all();
}

void StageService::Leave(State to) {
  MutexLock lock(mutex_);
  SetStateLocked(to);
}

absl::Status StageService::EnterLoad(const grpc::ServerContext& context, const v1::Lease& lease) {
  // Includes kJoined: a router may have died before it opened its step stream.
  static constexpr std::initializer_list<State> kFree = {State::kEmpty, State::kLoaded,
                                                         State::kJoined};
  MutexLock lock(mutex_);
  if (shut_down_) return absl::UnavailableError("the worker is shutting down");
  const v1::Lease before = lease_.lease();
  SC_RETURN_IF_ERROR(lease_.Take(lease));
  const absl::Status taken = lease_.StillHeld(before);
  if (!taken.ok() && !CheckStateLocked(kFree, "Load").ok()) {
    spdlog::warn("{} takes over this worker from {}, which {}", LeaseTable::Name(lease),
                 LeaseTable::Name(before),
                 state_ == State::kStepping ? "is serving" : "is loading");
    if (session_ != nullptr) session_->Revoke(taken);
    const Clock::time_point end_of_grace = Clock::now() + kRevokeGrace;
    while (!CheckStateLocked(kFree, "Load").ok() && lease_.StillHeld(lease).ok()) {
      if (shut_down_) return absl::UnavailableError("the worker is shutting down");
      if (context.IsCancelled()) return absl::CancelledError("the router is gone");
      if (session_ != nullptr && Clock::now() > end_of_grace) session_->Cancel();
      state_changed_.wait_for(lock, kWantedInterval);
    }
  }
  SC_RETURN_IF_ERROR(lease_.StillHeld(lease));
  SC_RETURN_IF_ERROR(CheckStateLocked(kFree, "Load"));
  SetStateLocked(State::kLoading);
  return absl::OkStatus();
}

absl::Status StageService::EnterJoin(const v1::Lease& lease) {
  MutexLock lock(mutex_);
  SC_RETURN_IF_ERROR(lease_.Check(lease, LeaseTable::kEpochMayRise));
  SC_RETURN_IF_ERROR(CheckStateLocked({State::kLoaded, State::kJoined}, "Join"));
  lease_.Renew(lease);
  SetStateLocked(State::kJoining);
  return absl::OkStatus();
}

absl::StatusOr<std::shared_ptr<StageExecutor>> StageService::EnterStep(StepSession* session,
                                                                       const v1::Lease& lease) {
  MutexLock lock(mutex_);
  SC_RETURN_IF_ERROR(lease_.Check(lease));
  SC_RETURN_IF_ERROR(CheckStateLocked({State::kJoined}, "Step"));
  SetStateLocked(State::kStepping);
  session_ = session;
  return executor_;
}

void StageService::Shutdown() {
  MutexLock lock(mutex_);
  shut_down_ = true;
  if (executor_ != nullptr) executor_->Close(absl::UnavailableError("the worker is shutting down"));
}

absl::Status StageService::StopExecutor(const absl::Status& reason) {
  std::shared_ptr<StageExecutor> executor;
  {
    MutexLock lock(mutex_);
    executor = std::move(executor_);
  }
  if (executor == nullptr) return absl::OkStatus();
  // The executor's receivers may wait on the transport, and its sender for a neighbour.
  {
    const std::jthread watch = LoseIfHeld("the links of the previous epoch do not close");
    transport_->Close(reason);
    executor->Close(reason);
  }
  uint64_t work = *work_;
  Clock::time_point moved = Clock::now();
  while (!executor->has_ended()) {
    if (const uint64_t now = *work_; now != work) {
      work = now;
      moved = Clock::now();
    }
    if (Clock::now() - moved > kHeldLimit) {
      const absl::Status held = absl::UnavailableError(fmt::format(
          "step {} of the previous epoch has made no progress for {} s and does not end",
          executor->Progress().begun(), kHeldLimit.count()));
      // Leaked on purpose: its destructor would wait for the blocked thread.
      new std::shared_ptr<StageExecutor>(std::move(executor));
      Lose(held);
      return held;
    }
    std::this_thread::sleep_for(kEndedInterval);
  }
  executor->Stop(reason);
  return absl::OkStatus();
}

absl::Status StageService::AwaitDevice() {
  const std::jthread watch =
      LoseIfHeld("the device does not finish the work of the previous epoch");
  return ops_->Synchronize();
}

std::jthread StageService::LoseIfHeld(std::string why) {
  return std::jthread([this, why = std::move(why)](const std::stop_token& returned) {
    if (!WaitForStop(returned, kHeldLimit)) Lose(absl::UnavailableError(why));
  });
}

std::optional<v1::StepProgress> StageService::Progress() const {
  const MutexLock lock(mutex_);
  if (executor_ == nullptr) return std::nullopt;
  return executor_->Progress();
}

grpc::Status StageService::Describe(grpc::ServerContext*, const v1::DescribeRequest*,
                                    v1::DescribeResponse* response) {
  {
    // The router waits for the worker that takes this one's place.
    const MutexLock lock(mutex_);
    if (shut_down_) return ToGrpc(absl::UnavailableError("the worker is shutting down"));
  }
  const kernels::MemoryInUse memory = ops_->Memory();
  char host[256] = "";
  gethostname(host, sizeof(host) - 1);
  response->set_version(kVersion);
  response->set_device(ops_->has_own_memory() ? "cuda" : "cpu");
  response->set_device_name(ops_->Describe());
  response->set_numerics(ops_->Numerics());
  response->set_n_threads(n_threads_);
  response->set_memory_total_bytes(memory.total_bytes);
  response->set_memory_available_bytes(memory.free_bytes);
  response->set_host(host);
  response->set_pid(getpid());
  MutexLock lock(mutex_);
  if (lease_.lease().epoch() > 0) *response->mutable_lease() = lease_.lease();
  if (layers_) *response->mutable_layers() = *layers_;
  return grpc::Status::OK;
}

grpc::Status StageService::Load(grpc::ServerContext* context, const v1::LoadRequest* request,
                                grpc::ServerWriter<v1::LoadProgress>* writer) {
  if (absl::Status status = CheckLoad(*request); !status.ok()) return ToGrpc(status);
  if (absl::Status status = CheckNumerics(*request, ops_->Numerics()); !status.ok()) {
    return ToGrpc(status);
  }
  if (absl::Status status = EnterLoad(*context, request->lease()); !status.ok()) {
    return ToGrpc(status);
  }
  const absl::Status status = Caught([&] { return DoLoad(*context, *request, writer); });
  if (!status.ok()) {
    model_.reset();
    kept_.AbandonLoad();
    CheckDevice();
  }
  Leave(status.ok() ? State::kLoaded : State::kEmpty);
  return ToGrpc(status);
}

void StageService::CheckDevice() {
  absl::Status device = ops_->CheckDevice();
  if (device.ok()) return;
  kept_.Distrust();
  Lose(std::move(device));
}

void StageService::Lose(absl::Status status) {
  std::function<void(absl::Status)> on_lost;
  {
    MutexLock lock(mutex_);
    on_lost = std::exchange(on_lost_, nullptr);
  }
  if (on_lost) on_lost(std::move(status));
}

grpc::Status StageService::OfferLinks(grpc::ServerContext*, const v1::OfferLinksRequest* request,
                                      v1::OfferLinksResponse* response) {
  {
    MutexLock lock(mutex_);
    absl::Status status = lease_.Check(request->lease(), LeaseTable::kEpochMayRise);
    if (status.ok()) status = CheckStateLocked({State::kLoaded, State::kJoined}, "OfferLinks");
    if (!status.ok()) return ToGrpc(status);
    lease_.Renew(request->lease());
  }
  absl::StatusOr<LinkOffer> offer =
      transport_->OfferLinks(request->lease().epoch(), static_cast<int32_t>(request->stage()),
                             static_cast<int32_t>(request->n_stages()));
  if (!offer.ok()) return ToGrpc(offer.status());
  response->set_ready(offer->ready);
  response->set_next(std::move(offer->next));
  response->set_tokens(std::move(offer->tokens));
  return grpc::Status::OK;
}

grpc::Status StageService::Join(grpc::ServerContext* context, const v1::JoinRequest* request,
                                v1::JoinResponse* response) {
  if (absl::Status status = EnterJoin(request->lease()); !status.ok()) return ToGrpc(status);
  const absl::Status status = Caught([&] { return DoJoin(*context, *request); });
  if (!status.ok()) CheckDevice();
  response->set_transport(transport_->Description());
  response->set_kv_since_epoch(kept_.kv_since());
  response->set_has_kv_store(Exchange() != nullptr);
  response->set_has_state_store(Exchange() != nullptr);
  Leave(status.ok() ? State::kJoined : State::kLoaded);
  return ToGrpc(status);
}

std::shared_ptr<text::GrammarCache> StageService::Grammars() {
  MutexLock lock(mutex_);
  return grammars_;
}

std::shared_ptr<KvExchange> StageService::Exchange() const {
  const MutexLock lock(mutex_);
  return exchange_;
}

grpc::Status StageService::PrepareGrammar(grpc::ServerContext* context,
                                          const v1::PrepareGrammarRequest* request,
                                          v1::PrepareGrammarResponse*) {
  std::shared_ptr<text::GrammarCache> grammars;
  {
    MutexLock lock(mutex_);
    if (absl::Status status = lease_.Check(request->lease()); !status.ok()) return ToGrpc(status);
    grammars = grammars_;
  }
  if (grammars == nullptr) {
    return ToGrpc(absl::FailedPreconditionError("this worker received no vocabulary for grammars"));
  }
  const v1::SlotGrammar& grammar = request->grammar();
  if (!v1::GrammarKind_IsValid(grammar.kind())) {
    return ToGrpc(absl::InvalidArgumentError("an unknown kind of grammar"));
  }
  // On a separate thread that the call need not wait for: a compilation cannot be cancelled.
  const auto compiled = std::make_shared<std::promise<absl::Status>>();
  std::future<absl::Status> status = compiled->get_future();
  compiling_.Post(
      [compiled, grammars,
       source = text::GrammarSource{.kind = static_cast<text::GrammarKind>(grammar.kind()),
                                    .text = grammar.source(),
                                    .any_whitespace = grammar.any_whitespace(),
                                    .begins_after = grammar.begins_after()}] {
        compiled->set_value(grammars->Get(source).status());
      });
  while (status.wait_for(kWantedInterval) != std::future_status::ready) {
    if (absl::Status wanted = StillWanted(*context, request->lease()); !wanted.ok()) {
      return ToGrpc(wanted);
    }
  }
  return ToGrpc(status.get());
}

grpc::ServerBidiReactor<v1::StepRequest, v1::StepResponse>* StageService::Step(
    grpc::CallbackServerContext* context) {
  return new StepSession(
      context, {.on_hello = [this](StepSession* session,
                                   const v1::Lease& lease) { return EnterStep(session, lease); },
                .on_end =
                    [this] {
                      spdlog::info("the step stream has ended");
                      CheckDevice();
                      std::function<void()> on_released;
                      {
                        MutexLock lock(mutex_);
                        session_ = nullptr;
                        SetStateLocked(State::kLoaded);
                        on_released = std::move(on_released_);
                      }
                      if (on_released) on_released();
                    }});
}

grpc::Status StageService::Stats(grpc::ServerContext*, const v1::StatsRequest*,
                                 v1::StatsResponse* response) {
  *response = ReadStats();
  return grpc::Status::OK;
}

bool StageService::BeginDrain(std::function<void()> on_released) {
  MutexLock lock(mutex_);
  shut_down_ = true;
  if (session_ == nullptr) return false;
  on_released_ = std::move(on_released);
  session_->TellDraining();
  return true;
}

v1::StatsResponse StageService::ReadStats() {
  std::shared_ptr<StageExecutor> executor;
  {
    MutexLock lock(mutex_);
    executor = executor_;
  }
  v1::StatsResponse stats;
  if (executor != nullptr) stats = executor->Stats(false);
  if (const auto exchange = Exchange()) *stats.mutable_kv_store() = exchange->Stats();
  stats.set_started_unix_s(static_cast<double>(started_unix_ns_) / 1e9);
  stats.set_cpu_s(static_cast<double>(std::clock()) / CLOCKS_PER_SEC);
  MutexLock lock(mutex_);
  stats.set_stage(stage_);
  *stats.mutable_load() = load_phases_;
  if (memory_.weights_bytes() > 0) *stats.mutable_memory() = memory_;
  return stats;
}

}  // namespace stagecoach::worker
