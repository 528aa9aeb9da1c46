#include "router/frontend/thread_watch.h"

#include <fmt/format.h>
#include <pthread.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <future>
#include <map>
#include <memory>
#include <string_view>
#include <utility>

namespace stagecoach::router {
namespace {

using Clock = std::chrono::steady_clock;

// A look that comes so much later than it should: the process itself was stopped meanwhile.
constexpr int kLateTicks = 5;

double InSeconds(Clock::duration time) { return std::chrono::duration<double>(time).count(); }

// The threads that answer questions.
class Questions {
 public:
  explicit Questions(const std::vector<ThreadWatch::Asked>& asked, Clock::duration interval)
      : interval_(interval) {
    for (const ThreadWatch::Asked& one : asked) open_.push_back({.asked = &one});
  }

  // Calls report(name, how long it has not answered) for each that has not answered yet.
  template <typename Report>
  void Look(Clock::time_point now, const Report& report) {
    for (Question& question : open_) {
      if (question.answered == nullptr && now >= question.next) {
        question.answered = question.asked->ask();
        question.since = now;
      }
      if (question.answered == nullptr) continue;
      if (question.answered()) {
        question.answered = nullptr;
        question.next = now + interval_;
      } else {
        report(question.asked->name, now - question.since);
      }
    }
  }

  void Shift(Clock::duration gap) {
    for (Question& question : open_) question.since += gap;
  }

 private:
  struct Question {
    const ThreadWatch::Asked* asked = nullptr;
    std::function<bool()> answered = nullptr;  // null: not asked now
    Clock::time_point since{}, next{};
  };

  const Clock::duration interval_;
  std::vector<Question> open_;
};

// The threads that the kernel keeps from running.
class Stopped {
 public:
  // Calls report(name, how long it has been stopped) for each of `threads`, which are stopped now.
  template <typename Report>
  void Look(const std::vector<StoppedThread>& threads, Clock::time_point now,
            const Report& report) {
    std::map<int, State> states;
    for (const StoppedThread& thread : threads) {
      if (thread.name == "log") continue;
      const auto before = states_.find(thread.id);
      const bool ran = before == states_.end() || before->second.cpu_ticks != thread.cpu_ticks;
      const State state{thread.cpu_ticks, ran ? now : before->second.since};
      states[thread.id] = state;
      report(thread.name, now - state.since);
    }
    states_ = std::move(states);
  }

  void Shift(Clock::duration gap) {
    for (auto& [id, state] : states_) state.since += gap;
  }

 private:
  struct State {
    uint64_t cpu_ticks = 0;
    Clock::time_point since;
  };

  std::map<int, State> states_;  // by thread id
};

}  // namespace

void ThreadWatch::Begin(std::vector<Asked> asked, ThreadWatchHooks hooks,
                        std::function<std::vector<StoppedThread>()> stopped) {
  asked_ = std::move(asked);
  hooks_ = std::move(hooks);
  stopped_ = std::move(stopped);
  thread_ = std::jthread([this](const std::stop_token& ending) { Run(ending); });
}

ThreadWatch::Asked ThreadWatch::AskScheduler(Scheduler* scheduler) {
  return {"scheduler", [scheduler]() -> std::function<bool()> {
            const auto snapshot =
                std::make_shared<std::future<SchedulerSnapshot>>(scheduler->Snapshot());
            return [snapshot] {
              return snapshot->wait_for(std::chrono::seconds(0)) == std::future_status::ready;
            };
          }};
}

ThreadWatch::Asked ThreadWatch::AskQueue(std::string name, WorkQueue* queue) {
  return {std::move(name), [queue]() -> std::function<bool()> {
            const uint64_t before = queue->n_done();
            queue->Post([] {});
            return [queue, before] { return queue->n_done() != before; };
          }};
}

std::string ThreadWatch::Stalled() const {
  const MutexLock lock(mutex_);
  return stalled_;
}

void ThreadWatch::End() {
  thread_.request_stop();
  if (thread_.joinable()) thread_.join();
}

void ThreadWatch::SetStalled(const std::string& stalled) {
  bool was_stalled = false;
  {
    const MutexLock lock(mutex_);
    was_stalled = !stalled_.empty();
    stalled_ = stalled;
  }
  const bool is_stalled = !stalled.empty();
  if (is_stalled == was_stalled) return;
  spdlog::warn("{}", is_stalled ? stalled : "the router's threads continue");
  if (hooks_.on_change) hooks_.on_change(is_stalled);
}

void ThreadWatch::Run(const std::stop_token& ending) {
  pthread_setname_np(pthread_self(), "thread watch");
  Questions questions(asked_, limits_.interval);
  Stopped stopped;
  Clock::time_point last_look = Clock::now();
  do {
    const Clock::time_point now = Clock::now();
    if (now - last_look > kLateTicks * limits_.tick) {
      questions.Shift(now - last_look);
      stopped.Shift(now - last_look);
    }
    last_look = now;
    Look worst;
    const auto report = [&](std::string_view words, const std::string& name,
                            Clock::duration waited) {
      if (waited <= std::max(worst.waited, limits_.notice)) return;
      worst = {fmt::format("the router's {} {} for {:.1f} s", name, words, InSeconds(waited)),
               waited};
    };
    questions.Look(now, [&](const std::string& name, Clock::duration waited) {
      report("has not answered", name, waited);
    });
    const bool unanswered = !worst.text.empty();  // a better description of the same stall
    stopped.Look(stopped_(), now, [&](const std::string& name, Clock::duration waited) {
      if (!unanswered) report("has been stopped", fmt::format("thread \"{}\"", name), waited);
    });
    if (worst.waited > limits_.end) {
      if (hooks_.on_lost) hooks_.on_lost(worst.text);
      return;
    }
    SetStalled(worst.text);
  } while (!WaitForStop(ending, limits_.tick));
}

}  // namespace stagecoach::router
