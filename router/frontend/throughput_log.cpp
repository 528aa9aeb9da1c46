#include "router/frontend/throughput_log.h"

#include <fmt/format.h>
#include <pthread.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <future>
#include <utility>

#include "common/mutex.h"

namespace stagecoach::router {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::seconds kInterval(10);
constexpr std::chrono::seconds kLogTimeout(1);

std::optional<SchedulerSnapshot> Ask(Scheduler* scheduler) {
  std::future<SchedulerSnapshot> future = scheduler->Snapshot();
  if (future.wait_for(kLogTimeout) != std::future_status::ready) return std::nullopt;
  return future.get();
}

// Share of KV blocks in use, from 0 to 1, in the KV group with the largest share.
double KvInUse(const SchedulerSnapshot& snapshot) {
  double most = 0;
  for (const SchedulerSnapshot::KvGroup& group : snapshot.kv) {
    if (group.total_blocks == 0) continue;
    const auto total = static_cast<double>(group.total_blocks);
    most = std::max(most, 1 - static_cast<double>(group.free_blocks) / total);
  }
  return most;
}

}  // namespace

std::string ThroughputLine(const SchedulerSnapshot& before, const SchedulerSnapshot& now,
                           double seconds) {
  const uint64_t n_prompt = now.prompt_tokens - before.prompt_tokens;
  const uint64_t n_generated = now.generated_tokens - before.generated_tokens;
  if (n_prompt == 0 && n_generated == 0 && now.running == 0 && now.waiting == 0) return "";
  return fmt::format(
      "{:.1f} prompt tokens/s, {:.1f} generated tokens/s; {} sequences run, {} wait; {:.0f} % of "
      "the KV cache in use",
      static_cast<double>(n_prompt) / seconds, static_cast<double>(n_generated) / seconds,
      now.running, now.waiting, KvInUse(now) * 100);
}

ThroughputLog::ThroughputLog(Read read, Say say, std::chrono::milliseconds interval)
    : read_(std::move(read)),
      say_(std::move(say)),
      interval_(interval),
      thread_([this](const std::stop_token& ending) { Run(ending); }) {}

ThroughputLog::ThroughputLog(Scheduler* scheduler)
    : ThroughputLog([scheduler] { return Ask(scheduler); },
                    [](const std::string& line) { spdlog::info("{}", line); }, kInterval) {}

void ThroughputLog::Run(const std::stop_token& ending) {
  pthread_setname_np(pthread_self(), "throughput");
  SchedulerSnapshot before;  // nothing has been computed yet
  Clock::time_point read_at = Clock::now();
  while (!WaitForStop(ending, interval_)) {
    if (std::optional<SchedulerSnapshot> snapshot = read_()) {
      const Clock::time_point now = Clock::now();
      const double seconds = std::chrono::duration<double>(now - read_at).count();
      if (const std::string line = ThroughputLine(before, *snapshot, seconds); !line.empty()) {
        say_(line);
      }
      before = *std::move(snapshot);
      read_at = now;
    }
  }
}

}  // namespace stagecoach::router
