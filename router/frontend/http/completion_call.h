// One /v1/completions or /v1/chat/completions from the request's text to the answer's last byte.
#pragma once

#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "router/frontend/generation.h"
#include "router/frontend/http/answer_json.h"
#include "router/frontend/http/api_request.h"
#include "router/frontend/http/exchange.h"
#include "router/frontend/http/memory_budget.h"
#include "router/frontend/stream_store.h"

namespace stagecoach::router {
class Frontend;
}

namespace stagecoach::router::http {

// The generations of all prompts share one text thread, whose all state here is. Lives until the
// last of them has ended, which each does soon after the client is gone, unless the stream is
// resumable.
class CompletionCall final : public std::enable_shared_from_this<CompletionCall> {
 public:
  // Submits the request; takes as long as its text is long, so not on the event loop. `frontend`
  // outlives the call. A resumable stream belongs to its caller. `body`: of what `request` was read
  // from; given back, as `request` is, when it has been tokenized, which may be later.
  static void Begin(Frontend* frontend, ApiRequest request, const std::string& request_id,
                    std::shared_ptr<Exchange> exchange, MemoryBudget::Lease body);

  CompletionCall(Frontend* frontend, const ApiRequest& request, const std::string& request_id,
                 std::shared_ptr<Exchange> exchange);

 private:
  // The messages of one prompt.
  class Writer final : public ResponseWriter {
   public:
    Writer(std::shared_ptr<CompletionCall> call, size_t prompt)
        : call_(std::move(call)), prompt_(prompt) {}
    void OnQueued() override { call_->OnQueued(); }
    bool Write(const v1::GenerateResponse& message) override {
      return call_->OnMessage(prompt_, message);
    }
    void WriteLast(const v1::GenerateResponse& message) override;
    void Fail(const absl::Status& status) override;

   private:
    // Until the end, after which nobody calls.
    std::shared_ptr<CompletionCall> call_;
    const size_t prompt_;
  };

  void CreateGenerations(const std::string& request_id);
  absl::Status KeepStream(const std::string& request_id);
  void StartGenerations(const ApiRequest& request);
  void RefuseAll(const absl::Status& status);
  void CancelAll(const absl::Status& status);

  void OnQueued();
  void StartStreamOnce();
  // Whether more can be written at once; if not `generation`, unless it has ended and is null, is
  // told later.
  bool WriteEvents(std::string events, const std::shared_ptr<Generation>& generation);
  void EndStream(std::string events);
  // False: the message is written later.
  bool OnMessage(size_t prompt, const v1::GenerateResponse& message);
  void OnLast(size_t prompt, const v1::GenerateResponse& message);
  void OnFailure(size_t prompt, const absl::Status& status);

  Frontend* const frontend_;
  const ApiRequest request_;  // without its input
  // Null where the stream is kept: its first reader's connection does not live for it.
  std::shared_ptr<Exchange> exchange_;
  // Where a resumable stream goes, for whoever reads it; null: it goes to the exchange.
  std::unique_ptr<StreamWriter> kept_;
  // Not changed once they are started.
  std::deque<Writer> writers_;
  std::vector<std::shared_ptr<Generation>> generations_;

  // Of the text thread.
  AnswerJson answer_;
  size_t n_queued_ = 0;
  uint64_t n_tokens_ = 0;
  size_t n_ended_ = 0;
  bool stream_started_ = false;
  bool failed_ = false;
};

}  // namespace stagecoach::router::http
