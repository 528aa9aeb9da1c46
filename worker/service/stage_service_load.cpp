// How a stage loads its layers and joins its neighbours: the parts of StageService that take long
// and run without its lock.
#include <fmt/format.h>
#include <grpcpp/grpcpp.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <chrono>
#include <stop_token>
#include <thread>
#include <utility>

#include "common/config/kv_tiers.h"
#include "common/config/load_config.h"
#include "common/kv_block.h"
#include "common/laps.h"
#include "common/mutex.h"
#include "common/size.h"
#include "common/status.h"
#include "common/text/grammar_cache.h"
#include "worker/loader/checkpoint_id.h"
#include "worker/model/link_needs.h"
#include "worker/model/passed_rows.h"
#include "worker/service/load_beat.h"
#include "worker/service/load_request.h"
#include "worker/service/memory_profile.h"
#include "worker/service/stage_service.h"

namespace stagecoach::worker {
namespace {

using Clock = std::chrono::steady_clock;

constexpr auto kPrepareLineInterval = std::chrono::seconds(1);

double MsSince(Clock::time_point start) {
  return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

// Without an earlier start's tuning, this one tunes.
void UseTuning(const TuningFile& file, kernels::Ops& ops) {
  const absl::StatusOr<std::string> tuning = file.Read();
  if (absl::IsNotFound(tuning.status())) return;
  const absl::Status used = tuning.ok() ? ops.UseTuning(*tuning) : tuning.status();
  if (used.ok()) {
    spdlog::info("uses the autotuning of an earlier start ({})", file.path());
  } else {
    spdlog::warn("cannot use the autotuning of an earlier start: {}", std::string(used.message()));
  }
}

void KeepTuning(const TuningFile& file, const kernels::Ops& ops) {
  const std::string tuning = ops.Tuning();
  if (tuning.empty()) return;
  if (const absl::Status written = file.Write(tuning); !written.ok()) {
    spdlog::warn("the next start will tune again, because this tuning cannot be kept: {}",
                 std::string(written.message()));
  }
}

// A report on kept weights has the ids: their files are not read again.
absl::Status IdentifyWeights(const v1::LoadRequest& request, bool has_kv_tiers,
                             v1::MemoryReport& report) {
  const v1::LoadConfig& config = request.config();
  const CheckpointOptions checkpoint(request.model_dir(), config.adapter_dir(), QuantizeTo(config));
  const bool has_weights = config.load_format() != v1::LOAD_FORMAT_DUMMY;
  if (has_kv_tiers && report.checkpoint_id().empty()) {
    SC_ASSIGN_OR_RETURN(*report.mutable_checkpoint_id(), CheckpointId(checkpoint, has_weights));
  }
  if (!report.layers_id().empty()) return absl::OkStatus();
  SC_ASSIGN_OR_RETURN(*report.mutable_layers_id(),
                      LayersId(checkpoint, has_weights, request.first_layer(), request.n_layers()));
  return absl::OkStatus();
}

}  // namespace

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
  SC_RETURN_IF_ERROR(StopExecutor(absl::CancelledError("the worker begins another load")));
  if (model_ != nullptr && IsLoaded(loaded_, request)) {
    *loaded_.mutable_lease() = request.lease();
    spdlog::info("stage {}/{} keeps its layers", request.stage(), request.n_stages());
    return Loaded();
  }
  loaded_.Clear();
  SetExchange(nullptr);
  model_.reset();  // before the new model takes memory
  kv_blocks_.clear();
  {
    MutexLock lock(mutex_);
    load_phases_.Clear();
    memory_.Clear();
    layers_.reset();
  }
  const Clock::time_point started = Clock::now();
  const auto on_progress = [&](uint64_t done, uint64_t total) {
    beat.SetBytes(done, total);
    return StillWanted(context, request.lease());
  };
  const v1::LoadConfig& config = request.config();
  const auto n_stages = static_cast<int32_t>(request.n_stages());
  const LinkNeeds links = transport_->links_devices()
                              ? LinkNeedsOf(static_cast<int32_t>(request.stage()), n_stages)
                              : LinkNeeds{};
  ops_->LeaveMultiprocessors(links.multiprocessors);
  Laps laps;
  kept_.BeginLoad(request);
  StageModelOptions options = ModelOptions(request, work_);
  options.weights = kept_.Weights();
  SC_ASSIGN_OR_RETURN(model_, load_(options, ops_, on_progress));
  const double load_ms = MsSince(started);
  SetPhase(&v1::LoadPhases::set_read_ms, load_ms);
  laps.End("model");
  SC_RETURN_IF_ERROR(transport_->Prepare(
      {.stage = static_cast<int32_t>(request.stage()),
       .n_stages = n_stages,
       .hidden_bytes =
           PassedBytes(model_->spec(), config, static_cast<size_t>(config.max_batched_tokens())),
       .token_bytes = static_cast<size_t>(config.max_sequences()) * sizeof(int32_t)}));

  laps.End("memory of links");
  SC_ASSIGN_OR_RETURN(auto grammars, MakeGrammars(request, model_->spec().vocab_size));
  {
    MutexLock lock(mutex_);
    grammars_ = std::move(grammars);
  }
  laps.End("vocabulary");
  SC_RETURN_IF_ERROR(StartExchange(config, request.n_local_workers()));

  const Clock::time_point profiling = Clock::now();
  beat.SetDoing("profiling the largest step");
  SC_ASSIGN_OR_RETURN(v1::MemoryReport report, FirstSteps(request, links.communicators));
  SetPhase(&v1::LoadPhases::set_profile_ms, MsSince(profiling));
  laps.End("first steps");
  spdlog::debug("stage {}/{}: loaded after {}", request.stage(), request.n_stages(),
                laps.ToString());
  report.set_load_ms(load_ms);
  report.set_kv_dtype(config.kv_dtype());
  report.set_hidden_dtype(config.hidden_dtype());
  SC_RETURN_IF_ERROR(IdentifyWeights(request, Exchange() != nullptr, report));
  kept_.KeepWeights(report);
  {
    MutexLock lock(mutex_);
    memory_ = std::move(report);
    stage_ = request.stage();
    v1::LayersHeld& layers = layers_.emplace();
    layers.set_first(request.first_layer());
    layers.set_count(request.n_layers());
  }
  loaded_ = request;
  spdlog::info("stage {}/{}: layers {} to {} loaded, {} of weights in {:.1f} s", request.stage(),
               request.n_stages(), request.first_layer(),
               request.first_layer() + request.n_layers() - 1, FormatBytes(model_->weights_bytes()),
               load_ms / 1e3);
  return Loaded();
}

v1::LoadProgress StageService::Loaded() const {
  v1::LoadProgress last;
  last.set_bytes_done(model_->weights_bytes());
  last.set_bytes_total(model_->weights_bytes());
  MutexLock lock(mutex_);
  *last.mutable_report() = memory_;
  return last;
}

absl::StatusOr<v1::MemoryReport> StageService::FirstSteps(const v1::LoadRequest& request,
                                                          int32_t n_links) {
  const v1::LoadConfig& config = request.config();
  const bool is_last = request.stage() + 1 == request.n_stages();
  const v1::KeptWeights* const kept = kept_.mapped_weights();
  if (kept != nullptr && ops_->UseTuning(kept->tuning()).ok()) {
    SC_RETURN_IF_ERROR(WarmUp(*model_, *ops_, is_last, config));
    v1::MemoryReport report = kept->report();
    if (config.kv_memory_bytes() > 0) report.set_kv_bytes(config.kv_memory_bytes());
    return report;
  }
  kept_.DropKv();
  if (tuning_) UseTuning(*tuning_, *ops_);
  SC_ASSIGN_OR_RETURN(
      v1::MemoryReport report,
      ProfileMemory(*model_, *ops_, is_last,
                    {.config = config,
                     .n_local_workers = static_cast<int32_t>(request.n_local_workers()),
                     .n_links = n_links,
                     .times_one_row = request.times_one_row()}));
  if (tuning_) KeepTuning(*tuning_, *ops_);
  return report;
}

void StageService::SetExchange(std::shared_ptr<KvExchange> exchange) {
  {
    const MutexLock lock(mutex_);
    exchange_.swap(exchange);
  }
  // The one before ends here, without the lock: it saves what is queued.
}

absl::Status StageService::StartExchange(const v1::LoadConfig& config, uint32_t n_local) {
  if (!HasKvTiers(config)) return absl::OkStatus();
  constexpr uint64_t kDefaultHostBytes = uint64_t{1} << 30;
  SC_ASSIGN_OR_RETURN(
      std::shared_ptr<KvExchange> exchange,
      KvExchange::Start(
          {.host_bytes = config.host_kv_bytes() > 0 ? config.host_kv_bytes() : kDefaultHostBytes,
           .disk = config.disk_kv(),
           .n_local = std::max(1u, n_local),
           .store = config.kv_store()},
          model_->kv_parts(), model_->state_parts(), ops_));
  SetExchange(std::move(exchange));
  return absl::OkStatus();
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
  if (request.n_states() > kMaxKvBlocks) {
    return absl::InvalidArgumentError(fmt::format("{} recurrent states; at most {} are possible",
                                                  request.n_states(), kMaxKvBlocks));
  }
  const auto most = std::max_element(kv_blocks.begin(), kv_blocks.end());
  if (most != kv_blocks.end() && *most > kMaxKvBlocks) {
    return absl::InvalidArgumentError(
        fmt::format("{} KV blocks in a group; at most {} are possible: lower --kv-memory", *most,
                    kMaxKvBlocks));
  }
  SC_RETURN_IF_ERROR(StopExecutor(absl::CancelledError("the worker is joining a new pipeline")));
  // A kernel that never ends would hold up the links, and the router would blame another stage.
  // Copies of KV blocks may still be queued, too, and their host memory is free already.
  SC_RETURN_IF_ERROR(AwaitDevice());
  Laps laps;
  const Clock::time_point preparing = Clock::now();
  // Another epoch of the same pipeline keeps the cache, and the steps that were recorded for it.
  if (kv_blocks != kv_blocks_ || request.n_states() != n_states_) {
    kv_blocks_.clear();
    LastingMemory memory = kept_.Kv(kv_blocks, request.lease().epoch());
    // Recurrent states end with the process. Keys and values are of no use without them.
    if (model_->spec().recurrent) memory = {};
    SC_RETURN_IF_ERROR(model_->AllocateKv(kv_blocks, memory));
    SC_RETURN_IF_ERROR(model_->AllocateStates(request.n_states()));
    n_states_ = request.n_states();
    laps.End("KV cache");
    SC_RETURN_IF_ERROR(PrepareModel());
    laps.End("captures");
    kv_blocks_ = kv_blocks;
  }
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
  laps.End("links");
  const StageLimits limits{.config = loaded_.config(),
                           .vocab_size = model_->spec().vocab_size,
                           .n_kv_groups = static_cast<int32_t>(kv_blocks.size()),
                           .pools_hidden = model_->spec().pooling.has_value(),
                           .n_states = static_cast<uint32_t>(n_states_)};
  const StageExecutor::Config config{.epoch = request.lease().epoch(),
                                     .stage = static_cast<int32_t>(request.stage()),
                                     .n_stages = static_cast<int32_t>(request.n_stages()),
                                     .limits = limits,
                                     .kv_blocks = kv_blocks,
                                     .grammars = Grammars(),
                                     .exchange = Exchange(),
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
                    loaded_.config().max_sequences(), loaded_.config().max_model_len()));
  }
  if (!executor.ok()) {
    transport_->Close(executor.status());
    return executor.status();
  }
  laps.End("executor");
  spdlog::debug("stage {}/{}: joined after {}", request.stage(), request.n_stages(),
                laps.ToString());
  MutexLock lock(mutex_);
  executor_ = *std::move(executor);
  return absl::OkStatus();
}

void StageService::SetPhase(void (v1::LoadPhases::*set)(double), double ms) {
  MutexLock lock(mutex_);
  (load_phases_.*set)(ms);
}

}  // namespace stagecoach::worker
