// What every protocol's front end needs: the served model, the scheduler, and threads for text.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/work_queue.h"
#include "router/frontend/arrival.h"
#include "router/frontend/generation.h"
#include "router/frontend/router_metrics.h"
#include "router/frontend/stream_store.h"
#include "router/text/served_model.h"
#include "stagecoach/v1/inference.pb.h"

namespace stagecoach::router {

struct FrontendOptions {
  int n_prompt_threads = 2;   // tokenizing, templates
  int n_grammar_threads = 2;  // requests with a grammar, which may take seconds to compile
  int n_output_threads = 2;   // detokenizing, messages; a stream stays on one of them
  size_t max_prompts = 4096;  // waiting to be tokenized; one more is RESOURCE_EXHAUSTED
  // Of one request, over its prompts: more never fit in the queue and the slots.
  size_t max_choices = 4096 + 256;
  StreamLimits streams;  // of those that are resumable
  TraceOptions traces;
  // By stage: in what way it stalls, in words; empty: it does not. Null: nobody watches.
  std::function<std::vector<std::string>()> stalled;
  // How the scheduler stalls, in words; empty: it does not. May be null.
  std::function<std::string()> scheduler_stalled;
};

// Thread-safe. Outlives every stream's end and the scheduler.
class Frontend {
 public:
  Frontend(const FrontendOptions& options, ServedModel model, std::vector<v1::StageStatus> stages,
           Scheduler* scheduler);
  ~Frontend();

  const ServedModel& model() const { return model_; }
  const RouterMetrics& metrics() const { return metrics_; }
  size_t max_choices() const { return max_choices_; }

  StreamStore& streams() { return streams_; }
  // One of the text threads.
  WorkQueue* NextLane() { return lanes_[next_lane_++ % lanes_.size()].get(); }
  // `given`, or one that is made if it is empty.
  static std::string RequestId(const std::string& given);

  // A generation that waits for its Begin, or Start. `request_id` may be empty: one is made. It
  // is of the same call as `beside`, if there is one, and shares its text thread.
  std::shared_ptr<Generation> NewGeneration(const std::string& request_id, ResponseWriter* writer,
                                            const Generation* beside = nullptr,
                                            const Arrival& arrival = {});
  // Tokenizes, checks and submits on another thread. `request` lives until the stream's end.
  void Begin(std::shared_ptr<Generation> generation, const v1::GenerateRequest* request);
  void Begin(std::shared_ptr<Generation> generation, const v1::ChatRequest* request);

  // Each takes as long as the text is long: run them with Post.
  absl::Status Tokenize(const v1::TokenizeRequest& request, v1::TokenizeResponse* response) const;
  absl::Status Detokenize(const v1::DetokenizeRequest& request,
                          v1::DetokenizeResponse* response) const;
  // Waits for the scheduler. UNAVAILABLE if it does not answer.
  absl::Status DescribeModel(v1::Model* model) const;
  absl::Status GetModel(const v1::GetModelRequest& request, v1::Model* model) const;

  // In what way the pipeline stalls; empty: it does not. Never waits.
  std::string Stalled() const;

  // Runs `task` on a prompt thread. RESOURCE_EXHAUSTED when too many wait, UNAVAILABLE when
  // draining; then the task is dropped.
  absl::Status Post(WorkQueue::Task task);
  // The same for what may take seconds: building a request with a grammar.
  absl::Status PostLong(WorkQueue::Task task) { return PostTo(grammars_, std::move(task)); }

  // New work is UNAVAILABLE from now on.
  void StopAccepting() { accepting_ = false; }

 private:
  absl::Status PostTo(WorkQueue& queue, WorkQueue::Task task);
  template <typename Request>
  void BeginAny(std::shared_ptr<Generation> generation, const Request* request);

  const ServedModel model_;
  const std::vector<v1::StageStatus> stages_;
  const size_t max_prompts_;
  const size_t max_choices_;
  const TraceOptions traces_;
  const std::function<std::vector<std::string>()> stalled_;
  const std::function<std::string()> scheduler_stalled_;
  Scheduler* const scheduler_;
  const RouterMetrics metrics_;
  std::atomic<bool> accepting_{true};
  std::atomic<SequenceId> next_id_{1};
  std::atomic<size_t> next_lane_{0};
  StreamStore streams_;
  // Last: their threads end first.
  std::vector<std::unique_ptr<WorkQueue>> lanes_;
  WorkQueue prompts_;
  WorkQueue grammars_;
};

}  // namespace stagecoach::router
