// One call that generates, such as one of /v1/chat/completions, from the parsed request to the last
// byte of the answer.
#pragma once

#include <deque>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "common/work_queue.h"
#include "router/access/memory_budget.h"
#include "router/frontend/generation.h"
#include "router/frontend/http/answer.h"
#include "router/frontend/http/api_request.h"
#include "router/frontend/http/exchange.h"
#include "router/frontend/stream_store.h"
#include "router/journal/journal_content.h"

namespace stagecoach::router {
class Frontend;
}

namespace stagecoach::router::http {

// The generations of all prompts share one text thread, which owns all state here. The call lives
// until the last generation has ended. After the client is gone, they end soon, unless the stream
// is resumable.
class CompletionCall final : public std::enable_shared_from_this<CompletionCall> {
 public:
  // Submits the request. Its time grows with the text, so do not call it on the event loop.
  // `frontend` outlives the call. A resumable stream belongs to its caller. `request` was
  // parsed from `body`. It and the body's memory lease are released after tokenization, which may
  // happen later.
  static void Begin(Frontend* frontend, ApiRequest request, const std::string& request_id,
                    std::string_view body, std::shared_ptr<Exchange> exchange,
                    MemoryBudget::Lease body_lease);
  // Goes on with a stream of the journal that an earlier router began. `done` is called when its
  // output so far can be read. Errors are those of StreamStore::Create and of parsing.
  static absl::Status Continue(Frontend* frontend, JournalStream stream, const Arrival& arrival,
                               WorkQueue::Task done);

  CompletionCall(Frontend* frontend, const ApiRequest& request, const std::string& request_id,
                 std::shared_ptr<Exchange> exchange);

 private:
  // Receives the messages of one prompt.
  class Writer final : public ResponseWriter {
   public:
    Writer(std::shared_ptr<CompletionCall> call, size_t prompt)
        : call_(std::move(call)), prompt_(prompt) {}
    void OnQueued() override { call_->OnQueued(); }
    bool Write(const v1::GenerateResponse& message) override {
      return call_->OnMessage(prompt_, message);
    }
    void WriteLast(const v1::GenerateResponse& message) override;
    void End(const absl::Status& status) override;

   private:
    // Reset at the end, after which there are no calls.
    std::shared_ptr<CompletionCall> call_;
    const size_t prompt_;
  };

  void CreateGenerations(const std::string& request_id);
  void CancelAll(const absl::Status& status);

  void OnQueued();
  void StartStreamOnce();
  // Returns whether more can be written at once. If not, `generation` gets WriteDone later, unless
  // it has ended and is null.
  bool WriteEvents(std::string events, const std::shared_ptr<Generation>& generation);
  void EndStream(std::string events);
  // Takes memory for a message that is kept. False: there is none, and the request has failed.
  bool TakeMemory(size_t prompt, const v1::GenerateResponse& message);
  // Keeps a message for the whole answer. False: there is no memory for it, and the request has
  // failed.
  bool Collect(size_t prompt, const v1::GenerateResponse& message);
  // False: the write is pending.
  bool OnMessage(size_t prompt, const v1::GenerateResponse& message);
  void OnLast(size_t prompt, const v1::GenerateResponse& message);
  void OnFailure(size_t prompt, const absl::Status& status);
  // Ends the answer with an error about `prompt`, and cancels the other prompts.
  void FailAll(size_t prompt, const absl::Status& status);

  Frontend* const frontend_;
  const ApiRequest request_;  // without prompts and grammars
  // Null if the stream is kept, so that the call does not keep its first reader's connection alive.
  std::shared_ptr<Exchange> exchange_;
  // The output of a resumable stream. Null: output goes to the exchange.
  std::unique_ptr<StreamWriter> kept_;
  // Constant after CreateGenerations.
  std::deque<Writer> writers_;
  Generations generations_;

  // Used only on the text thread.
  const std::unique_ptr<Answer> answer_;
  MemoryBudget::Lease memory_;  // of the answer, unless it is a stream
  size_t answer_bytes_ = 0;
  size_t n_queued_ = 0;
  uint64_t n_tokens_ = 0;
  size_t n_ended_ = 0;
  bool stream_started_ = false;
  bool failed_ = false;
};

}  // namespace stagecoach::router::http
