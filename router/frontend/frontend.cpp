#include "router/frontend/frontend.h"

#include <fmt/format.h>

#include <chrono>
#include <future>
#include <span>
#include <string_view>
#include <utility>

#include "common/status.h"
#include "common/text/utf8.h"
#include "router/frontend/new_request_id.h"
#include "router/journal/journal.h"
#include "router/scheduler/kv_blocks.h"
#include "router/scheduler/scheduler.h"
#include "router/text/chat.h"
#include "router/text/text_memory.h"

namespace stagecoach::router {
namespace {

constexpr auto kSnapshotTimeout = std::chrono::seconds(5);

ServedModel WithMemory(ServedModel model, MemoryBudget* memory) {
  model.memory = memory;
  return model;
}

// Builds the input of prompt `i`. The first error becomes the refusal of all that follow.
absl::StatusOr<GenerationInput> BuildOne(const Generation& generation, size_t i,
                                         Frontend::BuildFunction& build, absl::Status& refusal) {
  // Skip the work for clients that have left, so that nobody waits for their grammars.
  if (generation.cancelled()) refusal = absl::CancelledError("the client is gone");
  if (!refusal.ok()) return absl::CancelledError("another prompt of the request was refused");
  absl::StatusOr<GenerationInput> input = build(i);
  refusal = input.status();
  return input;
}

}  // namespace

Frontend::Frontend(const FrontendOptions& options, ServedModel model, Scheduler* scheduler)
    : memory_(options.request_memory_bytes, kSmallRequestBytes),
      model_(WithMemory(std::move(model), &memory_)),
      max_prompts_(options.max_prompts),
      max_choices_(options.max_choices),
      traces_(options.traces),
      log_requests_(options.log_requests),
      stages_(options.stages),
      not_ready_(options.not_ready),
      journal_(options.journal),
      scheduler_(scheduler),
      metrics_(model_.name),
      streams_(options.streams, &metrics_),
      prompts_(options.n_prompt_threads, "prompts"),
      grammars_(options.n_grammar_threads, "grammars") {
  for (int i = 0; i < options.n_output_threads; ++i) {
    lanes_.push_back(std::make_unique<WorkQueue>(1, "text"));
  }
}

std::vector<ThreadWatch::Asked> Frontend::AskTextThreads() const {
  std::vector<ThreadWatch::Asked> asked;
  asked.reserve(lanes_.size() + 1);  // the caller adds the scheduler
  for (const auto& lane : lanes_) {
    asked.push_back(ThreadWatch::AskQueue(fmt::format("text thread {}", asked.size()), lane.get()));
  }
  return asked;
}

Frontend::~Frontend() { streams_.StopWaiting(); }

std::string Frontend::RequestId(const std::string& given) {
  return given.empty() ? NewRequestId() : given;
}

std::shared_ptr<Generation> Frontend::NewGeneration(const std::string& request_id,
                                                    ResponseWriter* writer,
                                                    const Generation* beside,
                                                    const Arrival& arrival) {
  WorkQueue* lane = beside != nullptr ? beside->lane() : NextLane();
  const Generation::Services services = {.model = &model_,
                                         .memory = &memory_,
                                         .scheduler = scheduler_,
                                         .metrics = &metrics_,
                                         .lane = lane,
                                         .log_requests = log_requests_};
  return std::make_shared<Generation>(
      services, RequestId(request_id), next_id_.fetch_add(kMaxChoices), writer, arrival,
      RequestTrace::Begin(traces_, arrival.traceparent),
      beside != nullptr ? beside->call() : std::make_shared<ClientCall>());
}

absl::StatusOr<NewStream> Frontend::KeepStream(StreamProtocol protocol, const std::string& id,
                                               const Generations& generations,
                                               absl::FunctionRef<v1::StreamRecord()> record) {
  if (journal_ == nullptr) return Keep(protocol, id, generations, 0);
  const uint64_t number = journal_->NewNumber();
  const Arrival& arrival = generations.front()->arrival();
  v1::StreamRecord written = record();
  written.set_request_id(id);
  written.set_arrived_unix_us(arrival.wall_time.time_since_epoch().count());
  written.set_tenant(arrival.caller.tenant);
  written.set_weight(arrival.caller.weight);
  // Before the stream can be found, since its removal must come later.
  journal_->Begin(number, std::move(written));
  absl::StatusOr<NewStream> stream = Keep(protocol, id, generations, number);
  if (!stream.ok()) journal_->Remove(number);
  return stream;
}

absl::StatusOr<std::unique_ptr<StreamWriter>> Frontend::KeepAgain(StreamProtocol protocol,
                                                                  const std::string& id,
                                                                  const Generations& generations,
                                                                  uint64_t number) {
  SC_ASSIGN_OR_RETURN(NewStream stream, Keep(protocol, id, generations, number));
  return std::move(stream.writer);
}

absl::StatusOr<NewStream> Frontend::Keep(StreamProtocol protocol, const std::string& id,
                                         const Generations& generations, uint64_t journal_stream) {
  const Caller& caller = generations.front()->caller();
  absl::AnyInvocable<void() &&> removed;
  if (journal_ != nullptr) {
    for (size_t i = 0; i < generations.size(); ++i) {
      generations[i]->WriteTo(journal_, journal_stream, static_cast<uint32_t>(i));
    }
    removed = [journal = journal_, journal_stream] { journal->Remove(journal_stream); };
  }
  return streams_.Create(
      StreamOwner(protocol, caller), AccountOf(caller), id,
      [generations](const absl::Status& status) {
        for (const auto& generation : generations) generation->Cancel(status);
      },
      std::move(removed));
}

void Frontend::StartAll(const Generations& generations, BuildFunction build) {
  absl::Status refusal;
  for (size_t i = 0; i < generations.size(); ++i) {
    generations[i]->Start(BuildOne(*generations[i], i, build, refusal));
  }
}

void Frontend::PostContinue(const Generations& generations, bool needs_grammar, BuildFunction build,
                            std::vector<v1::SequenceEvent> events, WorkQueue::Task done) {
  WorkQueue& queue = needs_grammar ? grammars_ : prompts_;
  queue.Post([generations, build = std::move(build), events = std::move(events),
              done = std::move(done)]() mutable {
    absl::Status refusal;
    std::vector<absl::StatusOr<GenerationInput>> inputs;
    for (size_t i = 0; i < generations.size(); ++i) {
      inputs.push_back(BuildOne(*generations[i], i, build, refusal));
    }
    Generation::Continue(generations, std::move(inputs), std::move(events), std::move(done));
  });
}

void Frontend::PostStartAll(const Generations& generations, bool needs_grammar,
                            BuildFunction build) {
  const absl::Status posted = PostTo(needs_grammar ? grammars_ : prompts_,
                                     [generations, build = std::move(build)]() mutable {
                                       StartAll(generations, std::move(build));
                                     });
  if (!posted.ok()) StartAll(generations, [&posted](size_t) { return posted; });
}

absl::Status Frontend::PostTo(WorkQueue& queue, WorkQueue::Task task) {
  if (!accepting_) {
    metrics_.CountRefused(absl::StatusCode::kUnavailable);
    return absl::UnavailableError("the server is shutting down; send the request to another one");
  }
  const auto kind =
      &queue == &grammars_ ? RouterMetrics::Queue::kGrammars : RouterMetrics::Queue::kPrompts;
  if (queue.n_queued() >= max_prompts_) {
    metrics_.CountRefused(absl::StatusCode::kResourceExhausted);
    const std::string_view what = kind == RouterMetrics::Queue::kGrammars
                                      ? "for their grammar to be compiled"
                                      : "to be tokenized";
    return absl::ResourceExhaustedError(
        fmt::format("{} requests wait {}; try again later", max_prompts_, what));
  }
  metrics_.AddQueued(kind, 1);
  queue.Post([this, kind, task = std::move(task)]() mutable {
    metrics_.AddQueued(kind, -1);
    std::move(task)();
  });
  return absl::OkStatus();
}

absl::Status Frontend::Tokenize(const v1::TokenizeRequest& request,
                                v1::TokenizeResponse* response) const {
  SC_RETURN_IF_ERROR(CheckModelName(model_, request.model()));
  if (request.has_chat()) {
    SC_ASSIGN_OR_RETURN(ChatPrompt chat, RenderChat(model_, request.chat()));
    response->mutable_token_ids()->Add(chat.ids.begin(), chat.ids.end());
    response->set_text(std::move(chat.text));
    return absl::OkStatus();
  }
  SC_RETURN_IF_ERROR(text::CheckUtf8("text", request.text()));
  SC_ASSIGN_OR_RETURN(const TextMemory memory,
                      TextMemory::Reserve(model_, "text", request.text().size()));
  const bool add_special = !request.has_add_special_tokens() || request.add_special_tokens();
  SC_ASSIGN_OR_RETURN(const std::vector<int32_t> ids,
                      model_.tokenizer->Encode(request.text(), add_special));
  response->mutable_token_ids()->Add(ids.begin(), ids.end());
  response->set_text(request.text());
  return absl::OkStatus();
}

absl::Status Frontend::Detokenize(const v1::DetokenizeRequest& request,
                                  v1::DetokenizeResponse* response) const {
  SC_RETURN_IF_ERROR(CheckModelName(model_, request.model()));
  for (int i = 0; i < request.token_ids_size(); ++i) {
    if (request.token_ids(i) >= 0 && request.token_ids(i) < model_.spec.vocab_size) continue;
    return absl::InvalidArgumentError(
        fmt::format("token_ids[{}]: token id {} is outside the vocabulary of {}", i,
                    request.token_ids(i), model_.spec.vocab_size));
  }
  const std::span<const int32_t> ids(request.token_ids().data(), request.token_ids_size());
  SC_ASSIGN_OR_RETURN(*response->mutable_text(),
                      model_.tokenizer->Decode(ids, request.skip_special_tokens()));
  return absl::OkStatus();
}

absl::Status Frontend::GetModel(const v1::GetModelRequest& request, v1::Model* model) const {
  SC_RETURN_IF_ERROR(CheckModelName(model_, request.model()));
  return DescribeModel(model);
}

absl::Status Frontend::DescribeModel(v1::Model* model) const {
  std::future<SchedulerSnapshot> future = scheduler_->Snapshot();
  if (future.wait_for(kSnapshotTimeout) != std::future_status::ready) {
    return absl::UnavailableError("the scheduler does not answer");
  }
  const SchedulerSnapshot snapshot = future.get();
  model->set_id(model_.name);
  model->set_architecture(model_.spec.architecture);
  model->set_n_layers(model_.spec.n_layers());
  model->set_vocab_size(model_.spec.vocab_size);
  model->set_max_model_len(model_.max_model_len);
  model->set_dtype(model_.dtype);
  model->set_kv_dtype(model_.kv_dtype);
  model->set_hidden_dtype(model_.hidden_dtype);
  model->set_has_chat_template(model_.chat_template != nullptr);
  if (stages_) {
    for (v1::StageStatus& stage : stages_()) *model->add_stages() = std::move(stage);
  }
  v1::KvStatus& kv = *model->mutable_kv();
  kv.set_block_tokens(kBlockTokens);
  for (const auto& group : snapshot.kv) {
    v1::KvGroupStatus& status = *kv.add_groups();
    status.set_window(group.window);
    status.set_total_blocks(group.total_blocks);
    status.set_free_blocks(group.free_blocks);
  }
  v1::SchedulerStatus& scheduler = *model->mutable_scheduler();
  scheduler.set_running(snapshot.running);
  scheduler.set_waiting(snapshot.waiting);
  scheduler.set_microbatches_in_flight(snapshot.in_flight);
  scheduler.set_preemptions(snapshot.preemptions);
  scheduler.set_in_flight_ms(snapshot.in_flight_ms);
  scheduler.set_steps(snapshot.steps);
  return absl::OkStatus();
}

}  // namespace stagecoach::router
