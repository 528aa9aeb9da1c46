#include "cli/batch_runner.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/json.hpp>
#include <memory>
#include <utility>
#include <variant>

#include "cli/batch_line.h"
#include "cli/json_out.h"
#include "cli/openai_batch.h"
#include "common/json_text.h"
#include "common/rpc/server.h"

namespace stagecoach::cli {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kFirstBackoff(50);
constexpr milliseconds kLongestBackoff(5000);
constexpr uint32_t kMaxAttempts = 100;  // several minutes with the growing delays
constexpr milliseconds kProgressInterval(200);

milliseconds Backoff(uint32_t attempt) {
  return std::min(kFirstBackoff * (1 << std::min(attempt, 10u)), kLongestBackoff);
}

// {"index", "id" or "custom_id"}: the first keys of every result in our own format.
boost::json::object BeginResult(size_t index, const LineName& name) {
  boost::json::object result{{"index", index}};
  if (!name.key.empty()) result[name.key] = name.name;
  return result;
}

}  // namespace

// One stream. Deletes itself when it is done.
class BatchRunner::Call final : public grpc::ClientReadReactor<v1::GenerateResponse> {
 public:
  Call(BatchRunner& runner, size_t index, uint32_t attempt, BatchLine line)
      : runner_(runner), index_(index), attempt_(attempt), line_(std::move(line)) {}

  void Begin() {
    v1::Inference::Stub::async_interface* async = runner_.client_.stub().async();
    if (const auto* generate = std::get_if<v1::GenerateRequest>(&line_.request)) {
      async->Generate(&context_, generate, this);
    } else {
      async->Chat(&context_, &std::get<v1::ChatRequest>(line_.request), this);
    }
    StartRead(&piece_);
    StartCall();
  }

 private:
  void OnReadDone(bool ok) override {
    if (!ok) return;
    runner_.CountTokens(piece_.token_ids_size());
    completion_.Add(piece_);
    StartRead(&piece_);
  }

  void OnDone(const grpc::Status& status) override {
    BatchRunner& runner = runner_;
    const size_t index = index_;
    const uint32_t attempt = attempt_;
    const BatchLine line = std::move(line_);
    const Completion completion = std::move(completion_);
    // Delete the call before Run() can return: its context holds the channel, which must not be
    // destroyed on gRPC's own thread.
    delete this;
    runner.Finish(index, attempt, line, completion, status);
  }

  BatchRunner& runner_;
  const size_t index_;
  const uint32_t attempt_;
  BatchLine line_;
  grpc::ClientContext context_;
  v1::GenerateResponse piece_;
  Completion completion_;
};

BatchRunner::BatchRunner(const GrpcClient& client, std::string model, std::vector<BatchInput> lines,
                         size_t concurrency)
    : client_(client),
      model_(std::move(model)),
      lines_(std::move(lines)),
      concurrency_(concurrency) {}

size_t BatchRunner::Run(const ResultFn& on_result, const ProgressFn& on_progress) {
  size_t next_line = 0;
  size_t next_result = 0;
  MutexLock lock(mutex_);
  while (next_result < lines_.size()) {
    const Clock::time_point now = Clock::now();
    while (n_in_flight_ < concurrency_) {
      Retry start{next_line, 0};
      if (!retries_.empty() && retries_.begin()->first <= now) {
        start = retries_.begin()->second;
        retries_.erase(retries_.begin());
      } else if (next_line < lines_.size()) {
        ++next_line;
      } else {
        break;
      }
      ++n_in_flight_;
      lock.unlock();
      Start(start.index, start.attempt);
      lock.lock();
    }
    for (auto result = results_.find(next_result); result != results_.end();
         result = results_.find(next_result)) {
      const std::string line = std::move(results_.extract(result).mapped());
      ++next_result;
      lock.unlock();
      on_result(line);
      lock.lock();
    }
    const size_t n_done = n_done_;
    const uint64_t n_tokens = n_tokens_;
    lock.unlock();
    on_progress(n_done, n_tokens);
    lock.lock();
    if (next_result == lines_.size()) break;

    const bool can_start = n_in_flight_ < concurrency_ && next_line < lines_.size();
    if (can_start || results_.contains(next_result)) continue;
    Clock::time_point wake = Clock::now() + kProgressInterval;
    // If no slot is free, a due retry waits until a call ends, which notifies changed_.
    if (!retries_.empty() && n_in_flight_ < concurrency_) {
      wake = std::min(wake, retries_.begin()->first);
    }
    changed_.wait_until(lock, wake);
  }
  return n_failed_;
}

void BatchRunner::Start(size_t index, uint32_t attempt) {
  absl::StatusOr<BatchLine> line = ParseBatchLine(lines_[index].text);
  if (!line.ok()) {
    StoreResult(index, ErrorResult(index, NameOfLine(lines_[index].text), line.status()),
                /*failed=*/true);
    return;
  }
  const size_t n_bytes = std::visit([](const auto& r) { return r.ByteSizeLong(); }, line->request);
  if (n_bytes > kMaxClientMessageBytes) {
    // The transport would refuse such a request each time with RESOURCE_EXHAUSTED, like a full
    // queue.
    StoreResult(index,
                ErrorResult(index, line->name,
                            absl::InvalidArgumentError(
                                fmt::format("the request has {} bytes; the limit is {}", n_bytes,
                                            kMaxClientMessageBytes))),
                /*failed=*/true);
    return;
  }
  (new Call(*this, index, attempt, *std::move(line)))->Begin();
}

void BatchRunner::CountTokens(size_t n) {
  const MutexLock lock(mutex_);
  n_tokens_ += n;
}

std::string BatchRunner::ErrorResult(size_t index, const LineName& name,
                                     const absl::Status& status) const {
  if (name.is_openai) {
    return JsonText(OpenAiError(lines_[index].index, name, status));
  }
  boost::json::object result = BeginResult(lines_[index].index, name);
  result["error"] = {{"code", absl::StatusCodeToString(status.code())},
                     {"message", ToValidUtf8(std::string(status.message()))}};
  return JsonText(result);
}

void BatchRunner::Finish(size_t index, uint32_t attempt, const BatchLine& line,
                         const Completion& completion, const grpc::Status& status) {
  if (status.error_code() == grpc::StatusCode::RESOURCE_EXHAUSTED && attempt < kMaxAttempts) {
    const MutexLock lock(mutex_);
    retries_.emplace(Clock::now() + Backoff(attempt), Retry{index, attempt + 1});
    --n_in_flight_;
    changed_.notify_all();
    return;
  }
  if (!status.ok()) {
    StoreResult(index, ErrorResult(index, line.name, client_.Explain(status)), /*failed=*/true);
    return;
  }
  boost::json::object result = line.name.is_openai ? OpenAiResult(lines_[index].index, line.name,
                                                                  line.request, completion, model_)
                                                   : BeginResult(lines_[index].index, line.name);
  if (!line.name.is_openai) {
    for (auto& [key, value] : ToJson(completion, SamplingOf(line.request))) {
      result[key] = std::move(value);
    }
  }
  StoreResult(index, JsonText(result), /*failed=*/false);
}

void BatchRunner::StoreResult(size_t index, std::string result, bool failed) {
  const MutexLock lock(mutex_);
  results_.emplace(index, std::move(result));
  --n_in_flight_;
  ++n_done_;
  n_failed_ += failed;
  changed_.notify_all();
}

}  // namespace stagecoach::cli
