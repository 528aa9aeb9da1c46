#include "worker/service/stage_service.h"

#include <fmt/format.h>
#include <grpcpp/grpcpp.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <ctime>
#include <future>
#include <new>
#include <stop_token>
#include <string_view>
#include <thread>
#include <utility>

#include "common/kv_block.h"
#include "common/mutex.h"
#include "common/rpc/status.h"
#include "common/size.h"
#include "common/status.h"
#include "common/text/grammar_cache.h"
#include "common/unix_time.h"
#include "common/version.h"
#include "worker/model/link_needs.h"
#include "worker/service/load_beat.h"
#include "worker/service/load_request.h"
#include "worker/service/memory_profile.h"
#include "worker/service/step_session.h"

namespace stagecoach::worker {
namespace {

using Clock = std::chrono::steady_clock;

// Time without progress after which the threads of an ended epoch are considered blocked.
constexpr auto kHeldLimit = std::chrono::seconds(10);
constexpr auto kEndedInterval = std::chrono::milliseconds(2);
constexpr auto kPrepareLineInterval = std::chrono::seconds(1);
constexpr auto kWantedInterval = std::chrono::milliseconds(100);
// Time for a router that has lost the worker to receive the news.
constexpr auto kRevokeGrace = std::chrono::seconds(1);

double MsSince(Clock::time_point start) {
  return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

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
                           std::function<void(absl::Status)> on_lost)
    : ops_(ops),
      n_threads_(n_threads),
      transport_(transport),
      load_(std::move(load)),
      observers_(observers),
      started_unix_ns_(UnixNanoseconds()),
      on_lost_(std::move(on_lost)) {}

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
  transport_->Close(reason);
  executor->Close(reason);
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

std::optional<v1::StepProgress> StageService::Progress() const {
  const MutexLock lock(mutex_);
  if (executor_ == nullptr) return std::nullopt;
  return executor_->Progress();
}

grpc::Status StageService::Describe(grpc::ServerContext*, const v1::DescribeRequest*,
                                    v1::DescribeResponse* response) {
  const kernels::MemoryInUse memory = ops_->Memory();
  char host[256] = "";
  gethostname(host, sizeof(host) - 1);
  response->set_version(kVersion);
  response->set_device(ops_->has_own_memory() ? "cuda" : "cpu");
  response->set_device_name(ops_->Describe());
  response->set_n_threads(n_threads_);
  response->set_memory_total_bytes(memory.total_bytes);
  response->set_memory_available_bytes(memory.free_bytes);
  response->set_host(host);
  response->set_pid(getpid());
  MutexLock lock(mutex_);
  if (lease_.lease().epoch() > 0) *response->mutable_lease() = lease_.lease();
  return grpc::Status::OK;
}

grpc::Status StageService::Load(grpc::ServerContext* context, const v1::LoadRequest* request,
                                grpc::ServerWriter<v1::LoadProgress>* writer) {
  if (absl::Status status = CheckLoad(*request); !status.ok()) return ToGrpc(status);
  if (absl::Status status = EnterLoad(*context, request->lease()); !status.ok()) {
    return ToGrpc(status);
  }
  const absl::Status status = Caught([&] { return DoLoad(*context, *request, writer); });
  if (!status.ok()) {
    model_.reset();
    CheckDevice();
  }
  Leave(status.ok() ? State::kLoaded : State::kEmpty);
  return ToGrpc(status);
}

void StageService::CheckDevice() {
  absl::Status device = ops_->CheckDevice();
  if (!device.ok()) Lose(std::move(device));
}

void StageService::Lose(absl::Status status) {
  std::function<void(absl::Status)> on_lost;
  {
    MutexLock lock(mutex_);
    on_lost = std::exchange(on_lost_, nullptr);
  }
  if (on_lost) on_lost(std::move(status));
}

absl::Status StageService::StillWanted(const grpc::ServerContext& context,
                                       const v1::Lease& lease) const {
  if (context.IsCancelled()) return absl::CancelledError("the router is gone");
  MutexLock lock(mutex_);
  if (shut_down_) return absl::UnavailableError("the worker is shutting down");
  return lease_.StillHeld(lease);
}

absl::Status StageService::DoLoad(grpc::ServerContext& context, const v1::LoadRequest& request,
                                  grpc::ServerWriter<v1::LoadProgress>* writer) {
  SC_ASSIGN_OR_RETURN(const v1::LoadProgress last, LoadModel(context, request, writer));
  writer->Write(last);
  return absl::OkStatus();
}

absl::StatusOr<v1::LoadProgress> StageService::LoadModel(
    grpc::ServerContext& context, const v1::LoadRequest& request,
    grpc::ServerWriter<v1::LoadProgress>* writer) {
  LoadBeat beat(&context, writer, work_, [this](const std::string& doing) {
    Lose(absl::UnavailableError(
        fmt::format("a cancelled load does not end: it hangs while {}", doing)));
  });
  SC_RETURN_IF_ERROR(StopExecutor(absl::CancelledError("the worker is loading other layers")));
  model_.reset();  // before the new model takes memory
  {
    MutexLock lock(mutex_);
    load_phases_.Clear();
    memory_.Clear();
  }
  const Clock::time_point started = Clock::now();
  const auto on_progress = [&](uint64_t done, uint64_t total) {
    beat.SetBytes(done, total);
    return StillWanted(context, request.lease());
  };
  const auto n_stages = static_cast<int32_t>(request.n_stages());
  const LinkNeeds links = transport_->links_devices()
                              ? LinkNeedsOf(static_cast<int32_t>(request.stage()), n_stages)
                              : LinkNeeds{};
  ops_->LeaveMultiprocessors(links.multiprocessors);
  SC_ASSIGN_OR_RETURN(model_, load_(ModelOptions(request, work_), ops_, on_progress));
  const double load_ms = MsSince(started);
  SetPhase(&v1::LoadPhases::set_read_ms, load_ms);
  SC_RETURN_IF_ERROR(transport_->Prepare(
      {.stage = static_cast<int32_t>(request.stage()),
       .n_stages = n_stages,
       .hidden_bytes = size_t{request.max_batched_tokens()} *
                       static_cast<size_t>(model_->spec().hidden_size) * sizeof(float),
       .token_bytes = size_t{request.max_sequences()} * sizeof(int32_t)}));

  SC_ASSIGN_OR_RETURN(auto grammars, MakeGrammars(request, model_->spec().vocab_size));
  {
    MutexLock lock(mutex_);
    grammars_ = std::move(grammars);
  }

  const Clock::time_point profiling = Clock::now();
  beat.SetDoing("profiling the largest step");
  v1::LoadProgress last;
  SC_ASSIGN_OR_RETURN(
      *last.mutable_report(),
      ProfileMemory(*model_, *ops_, request.stage() + 1 == request.n_stages(),
                    {.max_batched_tokens = static_cast<int32_t>(request.max_batched_tokens()),
                     .max_sequences = static_cast<int32_t>(request.max_sequences()),
                     .max_model_len = static_cast<int32_t>(request.max_model_len()),
                     .kv_memory_bytes = request.kv_memory_bytes(),
                     .memory_fraction = request.memory_fraction(),
                     .n_local_workers = static_cast<int32_t>(request.n_local_workers()),
                     .n_links = links.communicators}));
  SetPhase(&v1::LoadPhases::set_profile_ms, MsSince(profiling));
  last.mutable_report()->set_load_ms(load_ms);
  {
    MutexLock lock(mutex_);
    memory_ = last.report();
    stage_ = request.stage();
  }
  last.set_bytes_done(model_->weights_bytes());
  last.set_bytes_total(model_->weights_bytes());
  loaded_ = request;
  spdlog::info("stage {}/{}: layers {} to {} loaded, {} of weights in {:.1f} s", request.stage(),
               request.n_stages(), request.first_layer(),
               request.first_layer() + request.n_layers() - 1, FormatBytes(model_->weights_bytes()),
               load_ms / 1e3);
  return last;
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
  Leave(status.ok() ? State::kJoined : State::kLoaded);
  return ToGrpc(status);
}

absl::Status StageService::PrepareModel() {
  const Clock::time_point started = Clock::now();
  Clock::time_point next_line = started + kPrepareLineInterval;
  const uint64_t free_before = ops_->Memory().free_bytes;
  int32_t n_recorded = 0;
  SC_RETURN_IF_ERROR(model_->Prepare([&](int32_t done, int32_t total) {
    n_recorded = done;
    if (Clock::now() < next_line && done < total) return;
    next_line = Clock::now() + kPrepareLineInterval;
    spdlog::info("recording decode steps [{:<20}] {} of {}, {:.1f} s",
                 std::string(static_cast<size_t>(20 * done / total), '#'), done, total,
                 MsSince(started) / 1e3);
  }));
  if (n_recorded > 0) {
    const uint64_t free_now = ops_->Memory().free_bytes;
    spdlog::info("{} decode steps recorded in {:.1f} s; they take {}", n_recorded,
                 MsSince(started) / 1e3,
                 FormatBytes(free_before - std::min(free_before, free_now)));
  }
  return absl::OkStatus();
}

absl::Status StageService::JoinTransport(const grpc::ServerContext& context, const v1::Lease& lease,
                                         const Neighbours& neighbours) {
  // Closes repeatedly, because the transport may start to join only after a Close.
  const std::jthread watch([&](const std::stop_token& joined) {
    while (!joined.stop_requested()) {
      absl::Status wanted = StillWanted(context, lease);
      if (!wanted.ok()) transport_->Close(std::move(wanted));
      WaitForStop(joined, kWantedInterval);
    }
  });
  return transport_->Join(neighbours);
}

absl::Status StageService::DoJoin(const grpc::ServerContext& context,
                                  const v1::JoinRequest& request) {
  if (request.stage() != loaded_.stage() || request.n_stages() != loaded_.n_stages()) {
    return absl::FailedPreconditionError(
        fmt::format("Join as stage {} of {}, but stage {} of {} was loaded", request.stage(),
                    request.n_stages(), loaded_.stage(), loaded_.n_stages()));
  }
  const std::vector<uint64_t> kv_blocks(request.kv_blocks().begin(), request.kv_blocks().end());
  if (kv_blocks.size() != model_->spec().kv_groups.size()) {
    return absl::InvalidArgumentError(
        fmt::format("kv_blocks for {} KV groups, but the model has {}", kv_blocks.size(),
                    model_->spec().kv_groups.size()));
  }
  const auto most = std::max_element(kv_blocks.begin(), kv_blocks.end());
  if (most != kv_blocks.end() && *most > kMaxKvBlocks) {
    return absl::InvalidArgumentError(
        fmt::format("{} KV blocks in a group; at most {} are possible: lower --kv-memory", *most,
                    kMaxKvBlocks));
  }
  SC_RETURN_IF_ERROR(StopExecutor(absl::CancelledError("the worker is joining a new pipeline")));
  const Clock::time_point preparing = Clock::now();
  SC_RETURN_IF_ERROR(model_->AllocateKv(kv_blocks));
  SC_RETURN_IF_ERROR(PrepareModel());
  SetPhase(&v1::LoadPhases::set_prepare_ms, MsSince(preparing));
  const Clock::time_point connecting = Clock::now();
  SC_RETURN_IF_ERROR(JoinTransport(context, request.lease(),
                                   {.epoch = request.lease().epoch(),
                                    .stage = static_cast<int32_t>(request.stage()),
                                    .n_stages = static_cast<int32_t>(request.n_stages()),
                                    .next_address = request.next_address(),
                                    .first_address = request.first_address(),
                                    .next_link = request.next_link(),
                                    .previous_link = request.previous_link(),
                                    .tokens_link = request.tokens_link()}));
  SetPhase(&v1::LoadPhases::set_connect_ms, MsSince(connecting));
  const StageLimits limits{.max_batched_tokens = static_cast<int32_t>(loaded_.max_batched_tokens()),
                           .max_sequences = static_cast<int32_t>(loaded_.max_sequences()),
                           .max_model_len = static_cast<int32_t>(loaded_.max_model_len()),
                           .max_logprobs = static_cast<int32_t>(loaded_.max_logprobs()),
                           .vocab_size = model_->spec().vocab_size,
                           .n_kv_groups = static_cast<int32_t>(kv_blocks.size())};
  const StageExecutor::Config config{.epoch = request.lease().epoch(),
                                     .stage = static_cast<int32_t>(request.stage()),
                                     .n_stages = static_cast<int32_t>(request.n_stages()),
                                     .limits = limits,
                                     .kv_blocks = kv_blocks,
                                     .grammars = Grammars(),
                                     .observers = observers_,
                                     .work = work_};
  if (observers_.flight != nullptr) {
    observers_.flight->SetStage(request.stage(), request.n_stages());
  }
  absl::StatusOr<std::unique_ptr<StageExecutor>> executor;
  try {
    executor = StageExecutor::Start(config, model_.get(), ops_, transport_);
  } catch (const std::bad_alloc&) {
    executor = absl::ResourceExhaustedError(
        fmt::format("no memory for the tables of {} sequences of {} tokens: lower "
                    "--max-sequences or --max-model-len",
                    limits.max_sequences, limits.max_model_len));
  }
  if (!executor.ok()) {
    transport_->Close(executor.status());
    return executor.status();
  }
  MutexLock lock(mutex_);
  executor_ = *std::move(executor);
  return absl::OkStatus();
}

void StageService::SetPhase(void (v1::LoadPhases::*set)(double), double ms) {
  MutexLock lock(mutex_);
  (load_phases_.*set)(ms);
}

std::shared_ptr<text::GrammarCache> StageService::Grammars() {
  MutexLock lock(mutex_);
  return grammars_;
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
  stats.set_started_unix_s(static_cast<double>(started_unix_ns_) / 1e9);
  stats.set_cpu_s(static_cast<double>(std::clock()) / CLOCKS_PER_SEC);
  MutexLock lock(mutex_);
  stats.set_stage(stage_);
  *stats.mutable_load() = load_phases_;
  if (memory_.weights_bytes() > 0) *stats.mutable_memory() = memory_;
  return stats;
}

}  // namespace stagecoach::worker
