#include "cli/bench/load_runner.h"

#include <grpcpp/client_context.h>

#include <algorithm>
#include <map>
#include <memory>
#include <random>
#include <utility>

#include "common/mutex.h"
#include "common/rpc/status.h"

namespace stagecoach::bench {
namespace {

constexpr std::chrono::milliseconds kProgressInterval(200);

class Run {
 public:
  Run(v1::Inference::Stub& stub, std::span<const Request> requests, const Load& load)
      : stub_(stub), requests_(requests), load_(load), records_(requests.size()) {}

  LoadResult Go(const ProgressFn& on_progress);

 private:
  class Call;

  void CancelAll();

  v1::Inference::Stub& stub_;
  const std::span<const Request> requests_;
  const Load& load_;
  std::vector<RequestRecord> records_;  // a record belongs to its call until the call is done

  Mutex mutex_;
  CondVar changed_;
  std::map<const Call*, std::shared_ptr<grpc::ClientContext>> in_flight_ ABSL_GUARDED_BY(mutex_);
  size_t n_done_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t n_tokens_ ABSL_GUARDED_BY(mutex_) = 0;
};

// One stream. Deletes itself when it is done.
class Run::Call final : public grpc::ClientReadReactor<v1::GenerateResponse> {
 public:
  Call(Run& run, size_t index) : run_(run), index_(index), record_(run.records_[index]) {
    v1::Inference::Stub::async_interface* async = run.stub_.async();
    const Request& request = run.requests_[index];
    record_.sent = Clock::now();
    if (run_.load_.timeout > Clock::duration::zero()) {
      context_->set_deadline(std::chrono::system_clock::now() + run_.load_.timeout);
    }
    {
      const MutexLock lock(run_.mutex_);
      run_.in_flight_.emplace(this, context_);
    }
    if (const auto* generate = std::get_if<v1::GenerateRequest>(&request)) {
      async->Generate(context_.get(), generate, this);
    } else {
      async->Chat(context_.get(), &std::get<v1::ChatRequest>(request), this);
    }
    StartRead(&piece_);
    StartCall();
  }

 private:
  void OnReadDone(bool ok) override {
    if (!ok) return;
    const auto n_tokens = static_cast<uint32_t>(piece_.token_ids_size());
    if (n_tokens > 0) record_.arrivals.push_back({Clock::now(), n_tokens});
    if (piece_.has_usage()) record_.prompt_tokens = piece_.usage().prompt_tokens();
    if (run_.load_.on_piece) run_.load_.on_piece(index_, piece_);
    {
      const MutexLock lock(run_.mutex_);
      run_.n_tokens_ += n_tokens;
    }
    StartRead(&piece_);
  }

  void OnDone(const grpc::Status& status) override {
    record_.done = Clock::now();
    record_.status = FromGrpc(status);
    Run& run = run_;
    std::shared_ptr<grpc::ClientContext> context;  // freed below, outside the lock
    {
      const MutexLock lock(run.mutex_);
      context = std::move(run.in_flight_.extract(this).mapped());
    }
    // Delete the call before Go() can return: its context holds the channel, which must not be
    // destroyed on gRPC's own thread.
    delete this;
    context.reset();
    const MutexLock lock(run.mutex_);
    ++run.n_done_;
    run.changed_.notify_all();
  }

  Run& run_;
  const size_t index_;
  RequestRecord& record_;
  const std::shared_ptr<grpc::ClientContext> context_ = std::make_shared<grpc::ClientContext>();
  v1::GenerateResponse piece_;
};

// Cancels the calls in flight. It must not hold the lock, because a call may end inside TryCancel.
void Run::CancelAll() {
  std::vector<std::shared_ptr<grpc::ClientContext>> contexts;
  {
    const MutexLock lock(mutex_);
    for (const auto& [call, context] : in_flight_) contexts.push_back(context);
  }
  for (const auto& context : contexts) context->TryCancel();
}

LoadResult Run::Go(const ProgressFn& on_progress) {
  const size_t room = load_.concurrency == 0 ? requests_.size() : load_.concurrency;
  std::mt19937_64 rng(load_.seed);
  std::exponential_distribution<double> gap_s(load_.request_rate > 0 ? load_.request_rate : 1.0);
  const Clock::time_point start = Clock::now();
  Clock::time_point next_send = start;
  size_t n_sent = 0;
  size_t n_all = requests_.size();
  bool is_stopped = false;

  MutexLock lock(mutex_);
  while (n_done_ < n_all) {
    while (n_sent < n_all && n_sent - n_done_ < room && next_send <= Clock::now()) {
      lock.unlock();
      new Call(*this, n_sent++);
      if (load_.request_rate > 0) {
        next_send +=
            std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(gap_s(rng)));
      }
      lock.lock();
    }
    const size_t n_done = n_done_;
    const uint64_t n_tokens = n_tokens_;
    lock.unlock();
    on_progress(n_done, n_tokens);
    if (!is_stopped && load_.stopped && load_.stopped()) {
      is_stopped = true;
      n_all = n_sent;
      CancelAll();
    }
    lock.lock();
    if (n_done_ != n_done) continue;
    Clock::time_point wake = Clock::now() + kProgressInterval;
    if (n_sent < n_all && n_sent - n_done_ < room) wake = std::min(wake, next_send);
    changed_.wait_until(lock, wake);
  }
  lock.unlock();

  LoadResult result{.records = std::move(records_)};
  result.records.resize(n_all);
  if (is_stopped) {
    std::erase_if(result.records,
                  [](const RequestRecord& record) { return absl::IsCancelled(record.status); });
  }
  Clock::time_point end = start;
  for (const RequestRecord& record : result.records) end = std::max(end, record.done);
  result.duration = end - start;
  return result;
}

}  // namespace

LoadResult RunLoad(v1::Inference::Stub& stub, std::span<const Request> requests, const Load& load,
                   const ProgressFn& on_progress) {
  return Run(stub, requests, load).Go(on_progress);
}

}  // namespace stagecoach::bench
