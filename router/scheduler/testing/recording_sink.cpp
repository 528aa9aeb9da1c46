#include "router/scheduler/testing/recording_sink.h"

namespace stagecoach::router {

void RecordingSink::OnOutput(const SequenceOutput& output, const SequenceTimes& times) {
  MutexLock lock(mutex_);
  if (record_.ended()) ++record_.n_after_end;
  record_.tokens.insert(record_.tokens.end(), output.tokens.begin(), output.tokens.end());
  if (output.logprobs != nullptr) record_.logprobs.push_back(output.logprobs->chosen());
  for (const v1::Logprobs* logprobs : output.prompt_logprobs) {
    record_.prompt_logprobs.push_back(logprobs->chosen());
  }
  record_.values.insert(record_.values.end(), output.values.begin(), output.values.end());
  record_.finish = output.finish;
  record_.times = times;
  changed_.notify_all();
}

void RecordingSink::OnError(const absl::Status& status) {
  MutexLock lock(mutex_);
  if (record_.ended()) ++record_.n_after_end;
  record_.error = status;
  changed_.notify_all();
}

RecordingSink::Record RecordingSink::record() const {
  MutexLock lock(mutex_);
  return record_;
}

RecordingSink::Record RecordingSink::WaitForEnd() const {
  MutexLock lock(mutex_);
  changed_.wait(lock, [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return record_.ended(); });
  return record_;
}

RecordingSink::Record RecordingSink::WaitForTokens(size_t n_tokens) const {
  MutexLock lock(mutex_);
  changed_.wait(lock, [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return record_.ended() || record_.tokens.size() >= n_tokens;
  });
  return record_;
}

}  // namespace stagecoach::router
