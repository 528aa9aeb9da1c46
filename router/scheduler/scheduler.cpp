// The scheduler's thread: takes messages and sends plans.
#include "router/scheduler/scheduler.h"

#include <pthread.h>

#include <chrono>
#include <thread>
#include <utility>
#include <variant>

#include "common/check.h"
#include "common/closable_queue.h"
#include "common/status.h"
#include "router/scheduler/core.h"
#include "router/scheduler/stage_client.h"

namespace stagecoach::router {
namespace {

struct SubmitMessage {
  std::vector<std::unique_ptr<SequenceRequest>> requests;
  std::chrono::steady_clock::time_point submitted;
};
struct CancelMessage {
  SequenceId id;
};
struct ResultMessage {
  std::unique_ptr<v1::StepResult> result;
};
struct FetchedMessage {
  v1::KvFetched fetched;
};
struct DownMessage {
  absl::Status reason;
};
struct InterruptedMessage {
  absl::Status reason;
};
struct ResumedMessage {
  uint64_t epoch;
  bool kv_kept;
};
struct DrainMessage {
  std::promise<void> done;
};
struct SnapshotMessage {
  std::function<void(SchedulerSnapshot)> done;
};
struct StopMessage {};
using Message =
    std::variant<SubmitMessage, CancelMessage, ResultMessage, FetchedMessage, DownMessage,
                 InterruptedMessage, ResumedMessage, DrainMessage, SnapshotMessage, StopMessage>;

class SchedulerThread final : public Scheduler {
 public:
  SchedulerThread(const SchedulerConfig& config, StageClient* client, SchedulerHooks hooks)
      : core_(config, std::move(hooks)), client_(*client) {}

  ~SchedulerThread() override { Stop(); }

  void Stop() override {
    if (!thread_.joinable()) return;
    Post(StopMessage{});
    thread_.join();
    client_.Stop();
  }

  absl::Status Run() {
    StageClientEvents events;
    events.on_result = [this](std::unique_ptr<v1::StepResult> result) {
      Post(ResultMessage{std::move(result)});
    };
    events.on_fetched = [this](const v1::KvFetched& fetched) { Post(FetchedMessage{fetched}); };
    events.on_down = [this](absl::Status reason) { Post(DownMessage{std::move(reason)}); };
    events.on_interrupted = [this](absl::Status reason) {
      Post(InterruptedMessage{std::move(reason)});
    };
    events.on_resumed = [this](uint64_t epoch, bool kv_kept) {
      Post(ResumedMessage{epoch, kv_kept});
    };
    SC_RETURN_IF_ERROR(client_.Start(std::move(events)));
    thread_ = std::thread([this] { Loop(); });
    return absl::OkStatus();
  }

  void Submit(std::vector<std::unique_ptr<SequenceRequest>> requests) override {
    Post(SubmitMessage{std::move(requests), std::chrono::steady_clock::now()});
  }
  void Cancel(SequenceId id) override { Post(CancelMessage{id}); }
  std::future<void> Drain() override {
    std::promise<void> done;
    std::future<void> future = done.get_future();
    Post(DrainMessage{std::move(done)});
    return future;
  }
  void AskSnapshot(std::function<void(SchedulerSnapshot)> done) override {
    Post(SnapshotMessage{std::move(done)});
  }

 private:
  // Any thread. After the scheduler thread has ended, drops the message.
  void Post(Message message) { mailbox_.Push(std::move(message)).IgnoreError(); }

  void Loop() {
    pthread_setname_np(pthread_self(), "scheduler");  // for `top -H` and debuggers
    std::vector<Message> messages;
    while (!stopping_) {
      mailbox_.Wait().IgnoreError();  // no error: only this thread closes it
      mailbox_.TakeAll(&messages);
      HandleAll(messages);
    }
    core_.Down(absl::UnavailableError("the server is shutting down"));
    // Take the remaining messages. None come later.
    mailbox_.Close(absl::UnavailableError("the scheduler has stopped"),
                   ClosableQueue<Message>::Rest::kKeep);
    mailbox_.TakeAll(&messages);
    HandleAll(messages);
  }

  void HandleAll(std::vector<Message>& messages) {
    for (Message& message : messages) {
      std::visit([this](auto& m) { Handle(m); }, message);
    }
    // The client does not know when a result did not match its plan.
    if (!stopping_ && !core_.failure().ok()) client_.Fail(core_.failure());
    SendFetches();
    while (std::unique_ptr<v1::StepPlan> plan = core_.NextPlan()) client_.Send(std::move(plan));
    SendFetches();  // of sequences that are to load before they are admitted
    core_.PublishKvEvents();
    // After planning, so that a snapshot shows the effect of the messages before it.
    for (auto& done : snapshots_) done(core_.Snapshot());
    snapshots_.clear();
    if (core_.empty()) {
      for (auto& drain : drains_) drain.set_value();
      drains_.clear();
    }
  }

  void SendFetches() {
    for (auto& fetch : core_.TakeFetches()) {
      client_.Fetch(core_.state().epoch(), std::move(fetch));
    }
  }

  void Handle(SubmitMessage& m) { core_.Submit(std::move(m.requests), m.submitted); }
  void Handle(CancelMessage& m) { core_.Cancel(m.id); }
  void Handle(ResultMessage& m) { core_.Result(*m.result); }
  void Handle(FetchedMessage& m) { core_.Fetched(m.fetched); }
  void Handle(DownMessage& m) { core_.Down(m.reason); }
  void Handle(InterruptedMessage& m) { core_.Interrupt(m.reason); }
  void Handle(ResumedMessage& m) { core_.Resume(m.epoch, m.kv_kept); }
  void Handle(DrainMessage& m) {
    core_.Drain(absl::UnavailableError("the server is shutting down"));
    drains_.push_back(std::move(m.done));
  }
  void Handle(SnapshotMessage& m) { snapshots_.push_back(std::move(m.done)); }
  void Handle(StopMessage&) { stopping_ = true; }

  SchedulerCore core_;  // only the thread uses this and the promises
  StageClient& client_;
  std::vector<std::promise<void>> drains_;
  std::vector<std::function<void(SchedulerSnapshot)>> snapshots_;
  bool stopping_ = false;
  ClosableQueue<Message> mailbox_;
  std::thread thread_;
};

}  // namespace

std::future<SchedulerSnapshot> Scheduler::Snapshot() {
  auto snapshot = std::make_shared<std::promise<SchedulerSnapshot>>();
  std::future<SchedulerSnapshot> future = snapshot->get_future();
  AskSnapshot([snapshot](SchedulerSnapshot taken) { snapshot->set_value(std::move(taken)); });
  return future;
}

absl::StatusOr<std::unique_ptr<Scheduler>> Scheduler::Start(const SchedulerConfig& config,
                                                            StageClient* client,
                                                            SchedulerHooks hooks) {
  SC_CHECK(client != nullptr);
  SC_RETURN_IF_ERROR(ValidateConfig(config));
  auto scheduler = std::make_unique<SchedulerThread>(config, client, std::move(hooks));
  SC_RETURN_IF_ERROR(scheduler->Run());
  return scheduler;
}

}  // namespace stagecoach::router
