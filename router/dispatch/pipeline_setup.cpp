#include "router/dispatch/pipeline_setup.h"

#include <fmt/format.h>
#include <grpcpp/grpcpp.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <functional>
#include <future>
#include <stop_token>
#include <string_view>
#include <thread>
#include <utility>

#include "absl/strings/escaping.h"
#include "common/config/kv_tiers.h"
#include "common/config/load_config.h"
#include "common/kv_block.h"
#include "common/model/device_support.h"
#include "common/model/kv_support.h"
#include "common/mutex.h"
#include "common/rpc/server.h"
#include "common/rpc/status.h"
#include "common/size.h"
#include "common/status.h"
#include "router/dispatch/layer_choice.h"
#include "router/dispatch/load_progress.h"
#include "router/dispatch/load_watch.h"
#include "router/sizing/step_limits.h"
#include "stagecoach/v1/stage.grpc.pb.h"

namespace stagecoach::router {
namespace {

// Workers may still be starting.
constexpr std::chrono::seconds kDescribeTimeout(60);
// A worker without an answer for this long is logged.
constexpr auto kSilence = std::chrono::seconds(5);
constexpr auto kJoinTimeout = std::chrono::seconds(120);
constexpr auto kPauseBetweenCalls = std::chrono::milliseconds(50);

struct Worker {
  int32_t stage = 0;
  std::string address;
  std::string name;  // "stage 1 (10.0.0.2:9100)"
  std::unique_ptr<v1::Stage::Stub> stub;
  v1::DescribeResponse description;
  v1::MemoryReport memory;
  v1::OfferLinksResponse links;
  v1::JoinResponse joined;
};

using WorkerCall = std::function<grpc::Status(Worker&, grpc::ClientContext&)>;

// Runs `call` for every worker in parallel. The first failure cancels the other calls; their errors
// are then ignored.
absl::Status OnAll(std::vector<Worker>& workers, std::string_view what, const WorkerCall& call,
                   const std::stop_token& stop = {}) {
  std::vector<grpc::ClientContext> contexts(workers.size());
  const std::stop_callback cancel(stop, [&contexts] {
    for (grpc::ClientContext& context : contexts) context.TryCancel();
  });
  Mutex mutex;
  bool cancelled = false;
  absl::StatusCode code = absl::StatusCode::kOk;
  std::string problems;
  std::vector<std::thread> threads;
  for (size_t i = 0; i < workers.size(); ++i) {
    threads.emplace_back([&, i] {
      absl::Status status = FromGrpc(call(workers[i], contexts[i]));
      if (status.ok()) return;
      MutexLock lock(mutex);
      if (absl::IsCancelled(status) && !cancelled && !stop.stop_requested()) {
        // A worker that shuts down cancels the calls that it has not answered.
        status = absl::UnavailableError("the worker ended the call");
      }
      if (cancelled && status.code() == absl::StatusCode::kCancelled) return;
      if (code == absl::StatusCode::kOk) code = status.code();
      if (!problems.empty()) problems += '\n';
      problems += fmt::format("{}: {}: {}", workers[i].name, what, std::string(status.message()));
      if (!std::exchange(cancelled, true)) {
        for (grpc::ClientContext& context : contexts) context.TryCancel();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return absl::Status(code, problems);
}

std::vector<Worker> Connect(const std::vector<std::string>& addresses,
                            const InternalAccess& access) {
  std::vector<Worker> workers;
  for (const std::string& address : addresses) {
    Worker worker;
    worker.stage = static_cast<int32_t>(workers.size());
    worker.address = address;
    worker.name = fmt::format("stage {} ({})", worker.stage, address);
    worker.stub =
        v1::Stage::NewStub(MakeInternalChannel(address, access, kMaxInternalMessageBytes));
    workers.push_back(std::move(worker));
  }
  return workers;
}

// Waits for a worker that is still starting; logs a warning meanwhile.
grpc::Status DescribeOne(Worker& worker, grpc::ClientContext& context, std::chrono::seconds limit) {
  constexpr std::string_view kWhatToDo =
      "check that stagecoach-worker runs there and that the router can reach its --listen address";
  std::promise<void> answered;
  std::thread notice([&worker, kWhatToDo, limit, end = answered.get_future()] {
    if (end.wait_for(kSilence) == std::future_status::ready) return;
    spdlog::warn("{} does not answer; the router waits up to {} s: {}", worker.name, limit.count(),
                 kWhatToDo);
  });
  context.set_wait_for_ready(true);
  context.set_deadline(std::chrono::system_clock::now() + limit);
  grpc::Status status = worker.stub->Describe(&context, {}, &worker.description);
  answered.set_value();
  notice.join();
  if (status.error_code() != grpc::StatusCode::DEADLINE_EXCEEDED) return status;
  return {status.error_code(), fmt::format("no answer within {} s; {}", limit.count(), kWhatToDo)};
}

// Describes all workers. One that shuts down answers UNAVAILABLE, until another one takes its
// address.
absl::Status AwaitAnswers(std::vector<Worker>& workers, std::chrono::seconds limit,
                          const std::stop_token& stop = {}) {
  const auto deadline = std::chrono::steady_clock::now() + limit;
  const auto describe = [limit](Worker& worker, grpc::ClientContext& context) {
    return DescribeOne(worker, context, limit);
  };
  while (true) {
    absl::Status status = OnAll(workers, "cannot be reached", describe, stop);
    if (!absl::IsUnavailable(status) || std::chrono::steady_clock::now() > deadline) return status;
    WaitForStop(stop, kPauseBetweenCalls);
  }
}

absl::Status Describe(std::vector<Worker>& workers, const std::stop_token& stop) {
  SC_RETURN_IF_ERROR(AwaitAnswers(workers, kDescribeTimeout, stop));
  for (const Worker& worker : workers) {
    const auto& d = worker.description;
    spdlog::info("{}: {} ({}), {} threads, {} of memory available, numerics \"{}\"", worker.name,
                 d.device(), d.device_name(), d.n_threads(),
                 FormatBytes(d.memory_available_bytes()), d.numerics());
    const std::string& first = workers.front().description.numerics();
    if (d.numerics() != first) {
      spdlog::warn(
          "{} computes with \"{}\", and stage 0 with \"{}\": the tokens can differ from "
          "those of other numbers of stages",
          worker.name, d.numerics(), first);
    }
  }
  return absl::OkStatus();
}

// A lease with an epoch above all that the workers report.
v1::Lease TakeLease(const std::vector<Worker>& workers, const std::string& holder) {
  uint64_t highest = 0;
  for (const Worker& worker : workers) {
    highest = std::max(highest, worker.description.lease().epoch());
  }
  return MakeLease(highest, holder);
}

// How many of the workers are on the worker's machine.
size_t NOnHostOf(const Worker& worker, const std::vector<Worker>& workers) {
  return std::count_if(workers.begin(), workers.end(), [&](const Worker& other) {
    return other.description.host() == worker.description.host();
  });
}

// others: workers of other pipelines.
v1::LoadRequest MakeLoadRequest(const PipelineOptions& options, const v1::LoadConfig& config,
                                const v1::Lease& lease, const std::vector<Worker>& workers,
                                const std::vector<Worker>& others, const Worker& worker,
                                const LayerRange& layers) {
  v1::LoadRequest request;
  *request.mutable_lease() = lease;
  *request.mutable_config() = config;
  request.set_model_dir(options.model_dir);
  request.set_stage(worker.stage);
  request.set_n_stages(workers.size());
  request.set_first_layer(layers.first);
  request.set_n_layers(layers.count);
  request.set_numerics(worker.description.numerics());
  request.set_n_local_workers(NOnHostOf(worker, workers) + NOnHostOf(worker, others));
  const bool is_last = worker.stage + 1 == static_cast<int32_t>(workers.size());
  if (is_last && options.token_table.n_logits() > 0) {
    *request.mutable_token_table() = options.token_table;
  }
  return request;
}

// FAILED_PRECONDITION: the worker is of a version that does not know a value of `config`.
grpc::Status DoesAsAsked(const v1::MemoryReport& report, const v1::LoadConfig& config) {
  const auto unknown = [](const char* flag) {
    return grpc::Status(grpc::StatusCode::FAILED_PRECONDITION,
                        fmt::format("the worker does not know {}: run the same version on router "
                                    "and workers",
                                    flag));
  };
  if (report.kv_dtype() != config.kv_dtype()) return unknown("--kv-dtype");
  if (report.hidden_dtype() != config.hidden_dtype()) return unknown("--hidden-dtype");
  return grpc::Status::OK;
}

// Loads each worker with the request of the same index.
absl::Status Load(const ModelSpec& spec, const PipelineOptions& options,
                  const std::vector<v1::LoadRequest>& requests, std::vector<Worker>& workers,
                  const std::stop_token& stop = {}) {
  LoadProgressDisplay display(workers.size(), options.terminal);
  const auto load = [&](Worker& worker, grpc::ClientContext& context) {
    const auto stream = worker.stub->Load(&context, requests[worker.stage]);
    LoadWatch watch(worker.name, options.flags.load_stall_limit,
                    [&context] { context.TryCancel(); });
    v1::LoadProgress progress;
    bool reported = false;
    while (stream->Read(&progress)) {
      watch.Heard(progress);
      display.Update(worker.stage, progress.bytes_done(), progress.bytes_total());
      if (progress.has_report()) {
        worker.memory = progress.report();
        reported = true;
      }
    }
    const grpc::Status status = stream->Finish();
    if (const absl::Status stalled = watch.End(); !stalled.ok()) return ToGrpc(stalled);
    if (!status.ok()) return status;
    if (!reported || worker.memory.kv_block_bytes_size() != int(spec.kv_groups.size())) {
      return grpc::Status(grpc::StatusCode::INTERNAL,
                          "the worker sent no memory report for this model: run the same version "
                          "on router and workers");
    }
    return DoesAsAsked(worker.memory, requests[worker.stage].config());
  };
  return OnAll(workers, "cannot load", load, stop);
}

// Changes `layers`, an even split, if the workers hold other layers or their devices differ.
// `loads`: the requests for `layers`.
absl::Status FitLayers(const ModelSpec& spec, const PipelineOptions& options,
                       const std::vector<v1::LoadRequest>& loads, const v1::LoadConfig& config,
                       std::vector<Worker>& workers, std::vector<LayerRange>& layers,
                       const std::stop_token& stop) {
  std::vector<v1::DescribeResponse> descriptions;
  descriptions.reserve(workers.size());
  for (const Worker& worker : workers) descriptions.push_back(worker.description);
  if (auto held = HeldLayers(spec, descriptions, options.lease_holder)) {
    layers = *std::move(held);
    return absl::OkStatus();
  }
  if (!MustMeasure(options.flags.measure_stages, descriptions)) return absl::OkStatus();
  std::vector<v1::LoadRequest> measuring;
  measuring.reserve(loads.size());
  for (const v1::LoadRequest& load : loads) measuring.push_back(MeasuringLoad(spec, load));
  SC_RETURN_IF_ERROR(Load(spec, options, measuring, workers, stop));
  std::vector<LayerOnDevice> devices;
  devices.reserve(workers.size());
  for (const Worker& worker : workers) {
    devices.push_back(Measured(worker.memory, worker.description, measuring[worker.stage]));
  }
  layers = ChooseMeasured(spec, devices, config, std::move(layers));
  return absl::OkStatus();
}

// See Pipeline::kv_scope. FAILED_PRECONDITION: the stages do not hold layers of one checkpoint.
// layers: by stage.
absl::StatusOr<std::string> KvScope(const ModelSpec& spec, const v1::LoadConfig& config,
                                    const std::vector<Worker>& workers,
                                    const std::vector<LayerRange>& layers) {
  if (!HasKvTiers(config)) return "";
  const Worker& first = workers.front();
  for (const Worker& worker : workers) {
    if (!worker.joined.has_kv_store() || (spec.recurrent && !worker.joined.has_state_store())) {
      spdlog::warn(
          "{} knows no KV store: run the same version on router and workers; the store is "
          "not used",
          worker.name);
      return "";
    }
    if (worker.memory.checkpoint_id() != first.memory.checkpoint_id()) {
      return absl::FailedPreconditionError(fmt::format(
          "{} and {} have read different weights or adapters", first.name, worker.name));
    }
  }
  // LongRoPE's factors depend on the longest sequence.
  const bool has_long_factors =
      std::any_of(spec.ropes.begin(), spec.ropes.end(),
                  [](const RopeSpec& rope) { return !rope.long_factors.empty(); });
  std::string scope =
      fmt::format("{}\n{}\n{}\n{}", absl::BytesToHexString(first.memory.checkpoint_id()),
                  first.description.numerics(), v1::DType_Name(config.dtype()),
                  has_long_factors ? config.max_model_len() : 0);
  // Stages keep recurrent states in their device's order, which may change.
  if (spec.recurrent) scope += "\nstates 1";
  // The type of the weights is not named again, so that blocks of older versions are found.
  if (config.kv_dtype() != v1::KV_DTYPE_AUTO) scope += "\n" + v1::KvDType_Name(config.kv_dtype());
  // Keys and values of later layers depend on where hidden states were rounded.
  if (HiddenDTypeOf(config) != DType::kF32 && layers.size() > 1) {
    scope += "\n" + v1::HiddenDType_Name(config.hidden_dtype());
    for (const LayerRange& range : layers) scope += fmt::format(" {}", range.first);
  }
  return scope;
}

// UNIMPLEMENTED: the model cannot be served like this.
absl::Status CheckOffered(const ModelSpec& spec, const v1::LoadConfig& config,
                          const std::vector<Worker>& workers) {
  const bool on_gpu = std::any_of(workers.begin(), workers.end(), [](const Worker& worker) {
    return worker.description.device() != "cpu";
  });
  if (on_gpu) SC_RETURN_IF_ERROR(CheckRunsOnGpus(spec));
  return CheckKvDType(spec, KvDTypeOf(config, spec.stored_dtype));
}

void LogStates(const KvPlan& plan, int32_t max_sequences, uint64_t bytes) {
  if (plan.n_states == 0) return;
  spdlog::info(
      "recurrent layers: {} for the state of each of {} sequences, and for each of {} states in "
      "the prefix cache; after a loss of a stage, sequences are computed again",
      FormatBytes(bytes), plan.max_sequences,
      plan.n_states - static_cast<uint64_t>(plan.max_sequences));
  if (plan.max_sequences < max_sequences) {
    spdlog::warn("max_sequences lowered from {} to {}: states take half of the KV memory",
                 max_sequences, plan.max_sequences);
  }
}

// max_model_len_is_fixed: a flag gave config's max_model_len.
absl::StatusOr<KvPlan> Size(const ModelSpec& spec, const v1::LoadConfig& config,
                            bool max_model_len_is_fixed, bool prefix_cache,
                            const std::vector<Worker>& workers) {
  std::vector<StageKvMemory> memory;
  uint64_t state_bytes = 0;
  for (const Worker& worker : workers) {
    state_bytes += worker.memory.state_bytes();
    const auto& report = worker.memory;
    spdlog::info(
        "{}: weights {}, scratch {}, KV cache {}; loaded in {:.1f} s, largest step {:.0f} ms",
        worker.name, FormatBytes(report.weights_bytes()), FormatBytes(report.scratch_bytes()),
        FormatBytes(report.kv_bytes()), report.load_ms() / 1000, report.largest_step_ms());
    memory.push_back(
        {.name = worker.name,
         .kv_bytes = report.kv_bytes(),
         .block_bytes = {report.kv_block_bytes().begin(), report.kv_block_bytes().end()},
         .device_bytes = report.device_bytes(),
         .taken_bytes = report.taken_bytes(),
         .state_bytes = report.state_bytes()});
  }
  SC_ASSIGN_OR_RETURN(KvPlan plan, SizeKv(spec.kv_groups, memory,
                                          {.max_sequences = config.max_sequences(),
                                           .max_batched_tokens = config.max_batched_tokens(),
                                           .max_prefill_chunk = config.max_prefill_chunk(),
                                           .max_model_len = config.max_model_len(),
                                           .max_model_len_is_fixed = max_model_len_is_fixed,
                                           .saves_states = prefix_cache}));
  LogStates(plan, config.max_sequences(), state_bytes);
  if (!max_model_len_is_fixed && plan.max_model_len < spec.max_positions) {
    spdlog::warn("max_model_len lowered from {} to {}: the KV cache holds {} blocks of {} tokens",
                 spec.max_positions, plan.max_model_len, plan.kv_blocks, kKvBlockTokens);
  }
  return plan;
}

absl::Status OfferLinks(const v1::Lease& lease, std::vector<Worker>& workers,
                        const std::stop_token& stop = {}) {
  if (workers.size() < 2) return absl::OkStatus();
  const auto offer = [&](Worker& worker, grpc::ClientContext& context) {
    v1::OfferLinksRequest request;
    *request.mutable_lease() = lease;
    request.set_stage(worker.stage);
    request.set_n_stages(workers.size());
    context.set_deadline(std::chrono::system_clock::now() + kJoinTimeout);
    return worker.stub->OfferLinks(&context, request, &worker.links);
  };
  SC_RETURN_IF_ERROR(OnAll(workers, "cannot offer links", offer, stop));
  const bool all_ready = std::all_of(workers.begin(), workers.end(),
                                     [](const Worker& worker) { return worker.links.ready(); });
  for (Worker& worker : workers) {
    if (!all_ready) worker.links.Clear();
  }
  return absl::OkStatus();
}

absl::Status Join(const v1::Lease& lease, const KvPlan& kv, std::vector<Worker>& workers,
                  const std::stop_token& stop = {}) {
  const auto join = [&](Worker& worker, grpc::ClientContext& context) {
    const bool is_last = worker.stage + 1 == static_cast<int32_t>(workers.size());
    v1::JoinRequest request;
    *request.mutable_lease() = lease;
    request.set_stage(worker.stage);
    request.set_n_stages(workers.size());
    if (!is_last) request.set_next_address(workers[worker.stage + 1].address);
    if (is_last && workers.size() > 1) request.set_first_address(workers[0].address);
    for (const uint64_t n : kv.n_blocks) request.add_kv_blocks(n);
    request.set_n_states(kv.n_states);
    request.set_next_link(worker.links.next());
    if (worker.stage > 0) request.set_previous_link(workers[worker.stage - 1].links.next());
    if (worker.stage == 0 || is_last) request.set_tokens_link(workers[0].links.tokens());
    context.set_deadline(std::chrono::system_clock::now() + kJoinTimeout);
    const grpc::Status status = worker.stub->Join(&context, request, &worker.joined);
    if (status.ok() && workers.size() > 1) {
      spdlog::info("{}: messages travel by {}", worker.name, worker.joined.transport());
    }
    return status;
  };
  return OnAll(workers, "cannot join the pipeline", join, stop);
}

// FAILED_PRECONDITION: the pipeline uses a KV store, and a replacement does not, or holds layers of
// other weights.
absl::Status CheckKvScope(const ModelSpec& spec, const Pipeline& pipeline,
                          const std::vector<Worker>& workers) {
  if (pipeline.kv_scope.empty()) return absl::OkStatus();
  std::vector<LayerRange> layers;
  for (const PipelineStage& stage : pipeline.stages) layers.push_back(stage.layers);
  SC_ASSIGN_OR_RETURN(const std::string scope, KvScope(spec, pipeline.config, workers, layers));
  if (scope == pipeline.kv_scope) return absl::OkStatus();
  return absl::FailedPreconditionError(
      "a stage's replacement cannot use the KV blocks in the pipeline's store: start the same "
      "version with the same weights");
}

uint64_t KvBytes(const KvPlan& kv, const v1::MemoryReport& memory) {
  uint64_t bytes = kv.n_states * memory.state_bytes();
  for (size_t g = 0; g < kv.n_blocks.size(); ++g) {
    bytes += kv.n_blocks[g] * memory.kv_block_bytes(static_cast<int>(g));
  }
  return bytes;
}

// FAILED_PRECONDITION: the worker, which holds the layers of `stage`, cannot go on where the one
// before it ended.
absl::Status CheckReplacement(const Worker& worker, const KvPlan& kv, const PipelineStage& stage) {
  const auto refuse = [&worker](std::string_view why) {
    return absl::FailedPreconditionError(fmt::format("{}: its replacement {}", worker.name, why));
  };
  if (KvBytes(kv, worker.memory) != stage.kv_bytes) {
    return refuse("has KV blocks of another size: run the same version on all workers");
  }
  const std::string& id = worker.memory.layers_id();
  if (!id.empty() && !stage.layers_id.empty() && id != stage.layers_id) {
    return refuse(
        "read other weights, because the model's files have changed since the start: to serve the "
        "new ones, start all stages again");
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Pipeline> SetUpPipeline(const ModelSpec& spec, const PipelineOptions& options,
                                       const std::stop_token& stop) {
  const int32_t n_stages = static_cast<int32_t>(options.addresses.size());
  const int32_t max_model_len = options.flags.config.max_model_len();
  if (max_model_len > spec.max_positions) {
    return absl::InvalidArgumentError(fmt::format(
        "--max-model-len {} is more than the {} positions that the model's config.json allows",
        max_model_len, spec.max_positions));
  }
  std::vector<std::string> all = options.addresses;
  all.insert(all.end(), options.other_addresses.begin(), options.other_addresses.end());
  for (auto it = all.begin(); it != all.end(); ++it) {
    if (std::find(all.begin(), it, *it) != it) {
      return absl::InvalidArgumentError(
          fmt::format("--stages names {} twice; a worker holds one stage", *it));
    }
  }
  SC_ASSIGN_OR_RETURN(std::vector<LayerRange> layers,
                      options.flags.layer_split.empty()
                          ? BalanceLayers(spec, n_stages)
                          : SplitLayers(options.flags.layer_split, spec, n_stages));
  std::vector<Worker> workers = Connect(options.addresses, options.access);
  SC_RETURN_IF_ERROR(Describe(workers, stop));
  std::vector<Worker> others = Connect(options.other_addresses, options.access);
  SC_RETURN_IF_ERROR(AwaitAnswers(others, kDescribeTimeout));
  const v1::Lease lease = TakeLease(workers, options.lease_holder);
  const bool on_gpus = workers.front().description.device() != "cpu";
  v1::LoadConfig config = WithDefaults(options.flags.config, on_gpus, workers.size());
  if (max_model_len == 0) config.set_max_model_len(spec.max_positions);
  SC_RETURN_IF_ERROR(CheckOffered(spec, config, workers));
  const auto requests = [&] {
    std::vector<v1::LoadRequest> made;
    made.reserve(workers.size());
    for (const Worker& worker : workers) {
      made.push_back(
          MakeLoadRequest(options, config, lease, workers, others, worker, layers[worker.stage]));
    }
    return made;
  };
  if (n_stages > 1 && options.flags.layer_split.empty()) {
    SC_RETURN_IF_ERROR(FitLayers(spec, options, requests(), config, workers, layers, stop));
  }
  SC_RETURN_IF_ERROR(Load(spec, options, requests(), workers, stop));
  SC_ASSIGN_OR_RETURN(KvPlan kv, Size(spec, config, /*max_model_len_is_fixed=*/max_model_len > 0,
                                      options.prefix_cache, workers));
  SC_RETURN_IF_ERROR(OfferLinks(lease, workers, stop));
  SC_RETURN_IF_ERROR(Join(lease, kv, workers, stop));
  SC_ASSIGN_OR_RETURN(std::string kv_scope, KvScope(spec, config, workers, layers));

  Pipeline pipeline{.lease = lease,
                    .stages = {},
                    .on_gpus = on_gpus,
                    .config = std::move(config),
                    .kv = std::move(kv),
                    .kv_scope = std::move(kv_scope)};
  for (const Worker& worker : workers) {
    const auto& d = worker.description;
    pipeline.stages.push_back(
        {.address = worker.address,
         .device = d.device_name().empty() ? d.device() : d.device() + ": " + d.device_name(),
         .weights = {worker.memory.weights().begin(), worker.memory.weights().end()},
         .numerics = d.numerics(),
         .layers_id = worker.memory.layers_id(),
         .layers = layers[worker.stage],
         .largest_step = std::chrono::duration<double, std::milli>(worker.memory.largest_step_ms()),
         .kv_bytes = KvBytes(pipeline.kv, worker.memory)});
  }
  return pipeline;
}

absl::StatusOr<RestoredPipeline> RestorePipeline(const ModelSpec& spec,
                                                 const PipelineOptions& options,
                                                 const Pipeline& pipeline, uint64_t lost_epoch,
                                                 std::chrono::seconds answer_limit,
                                                 const std::stop_token& stop,
                                                 const EnterPhase& enter) {
  std::vector<Worker> workers = Connect(options.addresses, options.access);
  SC_RETURN_IF_ERROR(AwaitAnswers(workers, answer_limit, stop));
  v1::Lease lease = pipeline.lease;
  for (const Worker& worker : workers) {
    const v1::Lease& held = worker.description.lease();
    // A new worker has no lease.
    if (held.epoch() > 0 && held.holder() != lease.holder()) {
      return absl::AbortedError(
          fmt::format("{}: router {} has its lease", worker.name, held.holder()));
    }
    lease.set_epoch(std::max(lease.epoch(), held.epoch()));
  }
  lease.set_epoch(lease.epoch() + 1);
  std::vector<v1::LoadRequest> requests;
  for (const Worker& worker : workers) {
    const PipelineStage& stage = pipeline.stages[worker.stage];
    v1::LoadRequest& request = requests.emplace_back(
        MakeLoadRequest(options, pipeline.config, lease, workers, {}, worker, stage.layers));
    // The plan of blocks holds: a worker that counted its free memory now might find less.
    request.mutable_config()->set_kv_memory_bytes(stage.kv_bytes);
    request.set_numerics(stage.numerics);
  }
  enter(RecoveryPhase::kLoad);
  SC_RETURN_IF_ERROR(Load(spec, options, requests, workers, stop));
  enter(RecoveryPhase::kJoin);
  for (const Worker& worker : workers) {
    SC_RETURN_IF_ERROR(CheckReplacement(worker, pipeline.kv, pipeline.stages[worker.stage]));
  }
  SC_RETURN_IF_ERROR(OfferLinks(lease, workers, stop));
  SC_RETURN_IF_ERROR(Join(lease, pipeline.kv, workers, stop));
  // A stage that was new in an attempt after the loss has joined since, but with an empty cache.
  const bool kv_kept = std::all_of(workers.begin(), workers.end(), [&](const Worker& worker) {
    const uint64_t since = worker.joined.kv_since_epoch();
    return since > 0 && since <= lost_epoch;
  });
  SC_RETURN_IF_ERROR(CheckKvScope(spec, pipeline, workers));
  return RestoredPipeline{.lease = lease, .kv_kept = kv_kept};
}

}  // namespace stagecoach::router
