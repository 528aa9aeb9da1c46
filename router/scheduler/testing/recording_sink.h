// A SequenceSink that records its calls; tests can wait for it.
#pragma once

#include <cstdint>
#include <vector>

#include "common/mutex.h"
#include "router/scheduler/request.h"

namespace stagecoach::router {

// Thread-safe.
class RecordingSink final : public SequenceSink {
 public:
  struct Record {
    std::vector<int32_t> tokens;
    std::vector<float> logprobs;         // `chosen` of each token, if logprobs came
    std::vector<float> prompt_logprobs;  // `chosen` of each prompt token
    std::vector<float> values;           // with pooling
    Finish finish = Finish::kNone;
    absl::Status error;
    SequenceTimes times;
    uint32_t n_after_end = 0;  // calls after the end, which are errors

    bool ended() const { return finish != Finish::kNone || !error.ok(); }
  };

  void OnOutput(const SequenceOutput& output, const SequenceTimes& times) override;
  void OnError(const absl::Status& status) override;

  Record record() const;
  // Blocks until the sequence has ended.
  Record WaitForEnd() const;
  // Blocks until there are n_tokens tokens, or the sequence has ended.
  Record WaitForTokens(size_t n_tokens) const;

 private:
  mutable Mutex mutex_;
  mutable CondVar changed_;
  Record record_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace stagecoach::router
