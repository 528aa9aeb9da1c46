// Shared by the front ends of all protocols: the served model, the scheduler, and threads for text
// processing.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "common/work_queue.h"
#include "router/access/memory_budget.h"
#include "router/frontend/arrival.h"
#include "router/frontend/generation.h"
#include "router/frontend/message_gate.h"
#include "router/frontend/router_metrics.h"
#include "router/frontend/stream_store.h"
#include "router/frontend/thread_watch.h"
#include "router/text/served_model.h"
#include "stagecoach/v1/inference.pb.h"

namespace stagecoach::router {

// Requests and answers up to this size do not count against the memory of all requests.
inline constexpr size_t kSmallRequestBytes = 64 << 10;

struct FrontendOptions {
  int n_prompt_threads = 2;   // tokenizing, chat templates
  int n_grammar_threads = 2;  // requests with a grammar, whose compilation may take seconds
  int n_output_threads = 2;   // detokenizing, messages; each stream stays on one of them
  // Requests that may wait for a prompt thread, and as many for a grammar thread; more are
  // RESOURCE_EXHAUSTED.
  size_t max_prompts = 4096;
  // Limit per request, over all of its prompts: more never fit in the queue and the slots.
  size_t max_choices = 4096 + 256;
  StreamLimits streams;  // limits of resumable streams
  // For all requests together: bodies and messages, texts that are tokenized, answers that wait for
  // their client.
  size_t request_memory_bytes = 256 << 20;
  TraceOptions traces;
  bool log_requests = true;  // a line in the log for each that has ended
  // The stages of all pipelines as they are now. Null: none are known.
  std::function<std::vector<v1::StageStatus>()> stages;
  // Why no request can be served now, in words; empty: requests are served. May be null.
  std::function<std::string()> not_ready;
  // The journal of resumable streams; null: none. It outlives this and the scheduler.
  Journal* journal = nullptr;
};

// Thread-safe. Outlives every stream and the scheduler.
class Frontend {
 public:
  Frontend(const FrontendOptions& options, ServedModel model, Scheduler* scheduler);
  ~Frontend();

  const ServedModel& model() const { return model_; }
  const RouterMetrics& metrics() const { return metrics_; }
  size_t max_choices() const { return max_choices_; }

  StreamStore& streams() { return streams_; }
  MemoryBudget& memory() { return memory_; }
  MessageGate& message_gate() { return message_gate_; }
  // The text threads, for a watch that ends before this object does.
  std::vector<ThreadWatch::Asked> AskTextThreads() const;
  // Returns one of the text threads, in rotation.
  WorkQueue* NextLane() { return lanes_[next_lane_++ % lanes_.size()].get(); }
  // `given`, or a new id if it is empty.
  static std::string RequestId(const std::string& given);

  // Makes a generation that waits for StartAll. If `request_id` is empty, makes an id. With
  // `beside`, it belongs to the same call and shares its text thread.
  std::shared_ptr<Generation> NewGeneration(const std::string& request_id, ResponseWriter* writer,
                                            const Generation* beside = nullptr,
                                            const Arrival& arrival = {});
  // Makes a kept stream, `id`, for the output of a call. The stream's cancellation cancels
  // `generations`. Errors are those of StreamStore::Create. If there is a journal, `record` gives
  // the request and its seeds.
  absl::StatusOr<NewStream> KeepStream(StreamProtocol protocol, const std::string& id,
                                       const Generations& generations,
                                       absl::FunctionRef<v1::StreamRecord()> record);
  // The same for a stream of the journal. Nobody reads it yet.
  absl::StatusOr<std::unique_ptr<StreamWriter>> KeepAgain(StreamProtocol protocol,
                                                          const std::string& id,
                                                          const Generations& generations,
                                                          uint64_t number);

  // Makes the input of prompt `i`.
  using BuildFunction = absl::AnyInvocable<absl::StatusOr<GenerationInput>(size_t i)>;
  // Builds and submits the prompts of a call, in order. The first error refuses all that follow,
  // which are then not built. Its time grows with the text, and may be seconds with a grammar.
  static void StartAll(const Generations& generations, BuildFunction build);
  // Calls StartAll on a prompt thread or, if `needs_grammar`, on a grammar thread.
  void PostStartAll(const Generations& generations, bool needs_grammar, BuildFunction build);
  // The same with Generation::Continue. Never refused.
  void PostContinue(const Generations& generations, bool needs_grammar, BuildFunction build,
                    std::vector<v1::SequenceEvent> events, WorkQueue::Task done);

  // The time of each grows with the length of the text: run them with Post.
  absl::Status Tokenize(const v1::TokenizeRequest& request, v1::TokenizeResponse* response) const;
  absl::Status Detokenize(const v1::DetokenizeRequest& request,
                          v1::DetokenizeResponse* response) const;
  // Waits for the scheduler. UNAVAILABLE if it does not answer within 5 s.
  absl::Status DescribeModel(v1::Model* model) const;
  absl::Status GetModel(const v1::GetModelRequest& request, v1::Model* model) const;

  // Why no request can be served now; empty: requests are served. Never blocks.
  std::string NotReady() const { return not_ready_ ? not_ready_() : ""; }

  // Runs `task` on a prompt thread. RESOURCE_EXHAUSTED if too many tasks wait, UNAVAILABLE while
  // draining; the task is then dropped.
  absl::Status Post(WorkQueue::Task task) { return PostTo(prompts_, std::move(task)); }
  // Like Post, for tasks that may take seconds: building a request with a grammar.
  absl::Status PostLong(WorkQueue::Task task) { return PostTo(grammars_, std::move(task)); }

  // Refuses new work with UNAVAILABLE from now on.
  void StopAccepting() { accepting_ = false; }

 private:
  absl::StatusOr<NewStream> Keep(StreamProtocol protocol, const std::string& id,
                                 const Generations& generations, uint64_t journal_stream);
  absl::Status PostTo(WorkQueue& queue, WorkQueue::Task task);

  MemoryBudget memory_;
  MessageGate message_gate_;
  const ServedModel model_;
  const size_t max_prompts_;
  const size_t max_choices_;
  const TraceOptions traces_;
  const bool log_requests_;
  const std::function<std::vector<v1::StageStatus>()> stages_;
  const std::function<std::string()> not_ready_;
  Journal* const journal_;
  Scheduler* const scheduler_;
  const RouterMetrics metrics_;
  std::atomic<bool> accepting_{true};
  std::atomic<SequenceId> next_id_{1};
  std::atomic<size_t> next_lane_{0};
  StreamStore streams_;
  // Last members, so that their threads end first.
  std::vector<std::unique_ptr<WorkQueue>> lanes_;
  WorkQueue prompts_;
  WorkQueue grammars_;
};

}  // namespace stagecoach::router
