#include "router/scheduler/core.h"

#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "common/status.h"
#include "router/scheduler/queue_shares.h"
#include "router/scheduler/results.h"
#include "spdlog/spdlog.h"

namespace stagecoach::router {

absl::Status ValidateConfig(const SchedulerConfig& config) {
  const std::pair<const char*, int32_t> at_least_one[] = {
      {"n_microbatches", config.n_microbatches},
      {"max_sequences", config.max_sequences},
      {"max_batched_tokens", config.max_batched_tokens},
      {"max_prefill_chunk", config.max_prefill_chunk},
      {"break_even_rows", config.break_even_rows},
      {"max_waiting", config.max_waiting},
      {"kv_fetch_min_tokens", config.kv_fetch_min_tokens},
      {"kv_blocks_beside", config.kv_blocks_beside},
  };
  for (const auto& [name, value] : at_least_one) {
    if (value < 1) {
      return absl::InvalidArgumentError(
          absl::StrCat("scheduler: ", name, " is ", value, "; it must be at least 1"));
    }
  }
  if (!config.kv_scope.empty() && !config.prefix_cache) {
    return absl::InvalidArgumentError(
        "scheduler: a KV store needs the prefix cache, which holds what comes from the store");
  }
  if (config.kv_events.sink != nullptr &&
      (!config.prefix_cache || config.kv_events.scope.empty())) {
    return absl::InvalidArgumentError(
        "scheduler: KV events need the prefix cache, and a scope that names its blocks");
  }
  if (config.is_recurrent && std::cmp_less(config.n_states, config.max_sequences)) {
    return absl::InvalidArgumentError(absl::StrCat("scheduler: ", config.n_states,
                                                   " recurrent states for ", config.max_sequences,
                                                   " sequences; each needs one"));
  }
  if (config.max_model_len < 2) {
    return absl::InvalidArgumentError(
        absl::StrCat("scheduler: max_model_len is ", config.max_model_len,
                     "; it must be at least 2 (a prompt token and a new token)"));
  }
  if (config.kv_groups.empty() || config.preempt_every < 0) {
    return absl::InvalidArgumentError(
        "scheduler: at least one KV group is required, and preempt_every must not be negative");
  }
  const auto max_chunk =
      static_cast<uint32_t>(std::min(config.max_prefill_chunk, config.max_batched_tokens));
  for (size_t g = 0; g < config.kv_groups.size(); ++g) {
    const auto& group = config.kv_groups[g];
    if (group.window.size < 0 ||
        group.n_blocks > std::numeric_limits<uint32_t>::max() / kBlockTokens) {
      return absl::InvalidArgumentError(absl::StrCat("scheduler: KV group ", g, " has a window of ",
                                                     group.window.size, " tokens and ",
                                                     group.n_blocks, " blocks"));
    }
    const uint32_t n_needed = KvBlocks({{group.window, 0}}, max_chunk)
                                  .MostHeld(0, static_cast<uint32_t>(config.max_model_len));
    if (group.n_blocks < n_needed) {
      return absl::InvalidArgumentError(
          absl::StrCat("scheduler: KV group ", g, " has ", group.n_blocks,
                       " blocks, but one sequence of ", config.max_model_len, " tokens needs ",
                       n_needed, "; give more KV memory or lower --max-model-len"));
    }
  }
  return absl::OkStatus();
}

SchedulerCore::SchedulerCore(const SchedulerConfig& config, SchedulerHooks hooks)
    : hooks_(std::move(hooks)), state_(config), planner_(&state_) {}

void SchedulerCore::Tell(PipelineState state) {
  if (hooks_.on_state) hooks_.on_state(state);
}

bool SchedulerCore::MayMove() const { return hooks_.may_move && hooks_.may_move(); }

void SchedulerCore::MoveOn(bool with_suspects) {
  if (state_.empty() || !MayMove()) return;
  auto requests = state_.TakeOut(with_suspects);
  if (requests.empty()) return;
  spdlog::warn("scheduler: {} sequences go on at another pipeline", requests.size());
  hooks_.move(std::move(requests));
}

absl::Status SchedulerCore::Admissible(
    const std::vector<std::unique_ptr<SequenceRequest>>& requests) const {
  // What was queued elsewhere is finished during a drain.
  const bool is_new = requests.empty() || !requests.front()->past;
  if (down_ || (is_new && !refused_.ok())) return refused_;
  const SchedulerConfig& config = state_.config();
  for (const auto& request : requests) {
    if (request->prompt->empty() || request->max_tokens == 0 ||
        std::cmp_greater_equal(request->prompt->size(), config.max_model_len)) {
      return absl::InvalidArgumentError(absl::StrCat(
          "a prompt of ", request->prompt->size(), " tokens with max_tokens ", request->max_tokens,
          " does not fit: both must be at least 1, ",
          "and the prompt and one new token must fit in ", config.max_model_len, " tokens"));
    }
  }
  if (std::cmp_greater(requests.size(), config.max_waiting)) {
    return absl::InvalidArgumentError(
        absl::StrCat("sampling.n: ", requests.size(),
                     " choices are more than the queue holds: ", config.max_waiting));
  }
  return absl::OkStatus();
}

absl::Status SchedulerCore::MakeRoomInQueue(
    const std::vector<std::unique_ptr<SequenceRequest>>& requests) {
  uint64_t n_tokens = 0;
  for (const auto& request : requests) n_tokens += request->prompt->size();
  std::vector<std::shared_ptr<Sequence>> evicted;
  const absl::Status status =
      MakeQueueRoom(state_, requests.front()->account, requests.size(), n_tokens, evicted);
  n_evicted_ += evicted.size();
  for (const auto& sequence : evicted) {
    sequence->request->sink->OnError(
        absl::ResourceExhaustedError("the queue is full, and this request gave its place to a "
                                     "tenant below its fair share; try again later"));
  }
  return status;
}

void SchedulerCore::Submit(std::vector<std::unique_ptr<SequenceRequest>> requests,
                           std::chrono::steady_clock::time_point submitted) {
  const auto call = std::make_shared<ClientCall>();
  for (const auto& request : requests) {
    SC_CHECK(request != nullptr && request->prompt != nullptr && request->sink != nullptr);
    if (request->call == nullptr) request->call = call;
  }
  // Whoever chose this pipeline did not know of its loss yet.
  if (down_ && !requests.empty() && MayMove()) return hooks_.move(std::move(requests));
  absl::Status admissible = Admissible(requests);
  if (admissible.ok() && !requests.empty() && !requests.front()->past) {
    admissible = MakeRoomInQueue(requests);
  }
  for (size_t i = 0; i < requests.size(); ++i) {
    auto& request = requests[i];
    if (admissible.ok()) {
      request->sink->OnQueued();
      state_.Add(std::move(request), submitted, /*has_twin=*/i > 0);
    } else {
      request->sink->OnError(admissible);
    }
  }
}

void SchedulerCore::Cancel(SequenceId id) {
  if (Sequence* sequence = state_.Find(id)) state_.End(sequence);
}

void SchedulerCore::Result(const v1::StepResult& result) {
  // A result of an earlier epoch may come late.
  if (down_ || interrupted_ || result.epoch() < state_.epoch()) return;
  if (absl::Status status = ApplyResult(state_, result); !status.ok()) Down(status);
}

void SchedulerCore::Fetched(const v1::KvFetched& fetched) { state_.Fetched(fetched); }

void SchedulerCore::Drain(const absl::Status& reason) {
  if (refused_.ok()) refused_ = reason;
  drains_ = true;
}

void SchedulerCore::TakeBack(const absl::Status& loss) {
  const std::shared_ptr<Sequence> culprit = state_.Interrupt();
  if (culprit == nullptr) return;
  state_.End(culprit.get());
  culprit->request->sink->OnError(absl::InternalError(
      absl::StrCat("this request was the only one in the pipeline when a stage was lost, and was "
                   "there in the losses before; it ends so that others can go on: ",
                   loss.message())));
}

void SchedulerCore::Interrupt(const absl::Status& reason) {
  if (down_) return;
  interrupted_ = true;
  Tell(PipelineState::kLost);
  state_.AbandonLoads();
  const size_t n_running = state_.running().size();
  TakeBack(reason);
  if (n_running > 0) {
    spdlog::warn("scheduler: {} running sequences wait for the next epoch", n_running);
  }
}

void SchedulerCore::Resume(uint64_t epoch, bool kv_kept) {
  if (down_) return;
  interrupted_ = false;
  state_.BeginEpoch(epoch, kv_kept);
  Tell(PipelineState::kWorks);
}

void SchedulerCore::Down(const absl::Status& reason) {
  if (std::exchange(down_, true)) return;
  refused_ = absl::UnavailableError(reason.message());
  Tell(PipelineState::kGone);
  state_.AbandonLoads();
  if (MayMove()) {
    if (!interrupted_) TakeBack(reason);
    MoveOn(/*with_suspects=*/true);
  }
  const auto ended = state_.EndAll();
  if (!ended.empty()) {
    spdlog::warn("scheduler: {} sequences end: {}", ended.size(),
                 std::string_view(reason.message().data(), reason.message().size()));
  }
  for (const auto& sequence : ended) sequence->request->sink->OnError(refused_);
  state_.kv().TellGone();
}

std::unique_ptr<v1::StepPlan> SchedulerCore::NextPlan() {
  if (interrupted_ && !down_) MoveOn(/*with_suspects=*/false);
  if (down_ || interrupted_) return nullptr;
  state_.SettleTrial();
  std::unique_ptr<v1::StepPlan> plan = planner_.Plan();
  if (plan != nullptr && std::exchange(drains_, false)) {
    for (const auto& sequence : state_.EndNotBegun()) sequence->request->sink->OnError(refused_);
  }
#ifndef NDEBUG
  state_.CheckConsistency();
#endif
  return plan;
}

SchedulerSnapshot SchedulerCore::Snapshot() const {
  SchedulerSnapshot snapshot;
  snapshot.running = static_cast<int32_t>(state_.running().size());
  snapshot.loading = state_.waiting().n_loading();
  snapshot.waiting = state_.waiting().size() + snapshot.loading;
  snapshot.waiting_high = state_.waiting().n_high();
  snapshot.waiting_low = state_.waiting().n_low();
  snapshot.in_flight = static_cast<int32_t>(state_.in_flight().size());
  snapshot.steps = state_.n_steps();
  snapshot.preemptions = state_.n_preemptions();
  snapshot.share_preemptions = state_.n_share_preemptions();
  snapshot.evicted = n_evicted_;
  for (const auto& tenant : state_.tenants().all()) {
    snapshot.tenants.push_back(
        {.name = tenant->name,
         .weight = tenant->weight,
         .running = tenant->n_running,
         .waiting = static_cast<uint32_t>(tenant->waiting.size() + tenant->loading.size()),
         .computed_tokens = tenant->n_computed});
  }
  snapshot.prompt_tokens = state_.n_prompt_tokens();
  snapshot.prefix_cache = state_.config().prefix_cache;
  snapshot.prefix_queries = state_.n_prefix_queries();
  snapshot.prefix_hits = state_.n_prefix_hits();
  snapshot.kv_store_hits = state_.n_stored_hits();
  snapshot.kv_saves = state_.kv().n_saved();
  snapshot.generated_tokens = state_.n_generated_tokens();
  snapshot.in_flight_ms = state_.InFlightMs();
  const KvBlocks& kv = state_.kv();
  for (int g = 0; g < kv.n_groups(); ++g) {
    snapshot.kv.push_back({kv.window(g).size, kv.n_total(g), kv.n_free(g)});
  }
  snapshot.down = down_;
  return snapshot;
}

}  // namespace stagecoach::router
