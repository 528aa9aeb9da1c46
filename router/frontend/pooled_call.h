// One client call of Embed or Rerank, over any protocol: a sequence for each input, and one answer
// when all have ended.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/status/statusor.h"
#include "router/access/memory_budget.h"
#include "router/frontend/arrival.h"
#include "router/frontend/frontend.h"
#include "router/frontend/generation.h"
#include "stagecoach/v1/inference.pb.h"

namespace stagecoach::router {

// The numbers of each input, in order.
struct PooledAnswer {
  std::vector<std::vector<float>> values;
  v1::Usage usage;             // of all inputs
  MemoryBudget::Lease memory;  // of the values and of the message that is made of them
};

// All generations share one text thread, which owns all state here. The call lives until the last
// of them has ended.
class PooledCall final : public std::enable_shared_from_this<PooledCall> {
 public:
  // Runs once, on the text thread.
  using Done = absl::AnyInvocable<void(absl::StatusOr<PooledAnswer>) &&>;

  // `build` makes the sequence of each input. `frontend` outlives the call.
  static std::shared_ptr<PooledCall> Make(Frontend* frontend, size_t n_inputs,
                                          const std::string& request_id, const Arrival& arrival,
                                          Frontend::BuildFunction build, Done done);

  // Builds and submits all inputs, here or on a prompt thread. Its time grows with the text. Call
  // one of the two, once.
  void Start() { Frontend::StartAll(generations_, std::move(build_)); }
  void PostStart() {
    frontend_->PostStartAll(generations_, /*needs_grammar=*/false, std::move(build_));
  }
  // The client is gone or past its deadline. Any thread.
  void Cancel();

 private:
  // Receives the only message of one input.
  class Writer final : public ResponseWriter {
   public:
    Writer(std::shared_ptr<PooledCall> call, size_t input)
        : call_(std::move(call)), input_(input) {}
    bool Write(const v1::GenerateResponse&) override { return true; }
    void WriteLast(const v1::GenerateResponse& message) override;
    void End(const absl::Status& status) override;

   private:
    std::shared_ptr<PooledCall> call_;  // reset at the end
    const size_t input_;
  };

  PooledCall(Frontend* frontend, size_t n_inputs, Frontend::BuildFunction build, Done done);
  void OnValues(size_t input, const v1::GenerateResponse& message);
  void Fail(const absl::Status& status);

  Frontend* const frontend_;
  std::deque<Writer> writers_;
  Generations generations_;
  Frontend::BuildFunction build_;
  // Used only on the text thread.
  Done done_;  // null after its call
  PooledAnswer answer_;
  size_t answer_bytes_ = 0;
  size_t n_ended_ = 0;
};

// Checks a request and makes its call, which the caller must start. Null if there is none because
// of an error, which `done` has had.
using EmbedDone =
    absl::AnyInvocable<void(absl::StatusOr<v1::EmbedResponse>, MemoryBudget::Lease) &&>;
using RerankDone =
    absl::AnyInvocable<void(absl::StatusOr<v1::RerankResponse>, MemoryBudget::Lease) &&>;
std::shared_ptr<PooledCall> MakePooled(Frontend* frontend,
                                       std::shared_ptr<const v1::EmbedRequest> request,
                                       const std::string& request_id, const Arrival& arrival,
                                       EmbedDone done);
std::shared_ptr<PooledCall> MakePooled(Frontend* frontend,
                                       std::shared_ptr<const v1::RerankRequest> request,
                                       const std::string& request_id, const Arrival& arrival,
                                       RerankDone done);

}  // namespace stagecoach::router
