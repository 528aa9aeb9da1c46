#include "router/dispatch/pipeline_client.h"

#include <fmt/format.h>
#include <grpcpp/grpcpp.h>

#include <array>
#include <deque>
#include <optional>
#include <thread>
#include <utility>

#include "common/check.h"
#include "common/mutex.h"
#include "common/rpc/server.h"
#include "common/rpc/status.h"
#include "common/status.h"
#include "router/dispatch/fetch_answers.h"
#include "router/dispatch/stage_loss.h"
#include "stagecoach/v1/stage.grpc.pb.h"

namespace stagecoach::router {
namespace {

// Timeout for a joined stage to answer the hello.
constexpr auto kReadyTimeout = std::chrono::seconds(30);
// Time within which the death of a process shows on its connection.
constexpr auto kSettleTime = std::chrono::milliseconds(300);
// Time to wait for one connection while others may show it.
constexpr auto kLookTime = std::chrono::milliseconds(5);

using StepStream = grpc::ClientReaderWriter<v1::StepRequest, v1::StepResponse>;

struct StageLink {
  std::string name;  // "stage 1 (10.0.0.2:9100)"
  std::shared_ptr<grpc::Channel> channel;
  std::unique_ptr<v1::Stage::Stub> stub;
  std::unique_ptr<grpc::ClientContext> context;
  std::unique_ptr<StepStream> stream;
  std::thread reader;
};

class PipelineClient final : public StageClient {
 public:
  PipelineClient(std::vector<std::string> addresses, v1::Lease lease, PipelineHooks hooks,
                 const InternalAccess& access)
      : lease_(std::move(lease)),
        hooks_(std::move(hooks)),
        links_(addresses.size()),
        answers_(addresses.size()) {
    SC_CHECK(!addresses.empty());
    for (size_t i = 0; i < links_.size(); ++i) {
      links_[i].name = fmt::format("stage {} ({})", i, addresses[i]);
      links_[i].channel = MakeInternalChannel(addresses[i], access, kMaxInternalMessageBytes);
      links_[i].stub = v1::Stage::NewStub(links_[i].channel);
    }
  }

  ~PipelineClient() override { Stop(); }

  absl::Status Start(StageClientEvents events) override;
  void Send(std::unique_ptr<v1::StepPlan> plan) override;
  void Fetch(uint64_t epoch, std::unique_ptr<v1::KvFetch> fetch) override;
  void Fail(const absl::Status& reason) override;
  void Stop() override;

 private:
  absl::Status Greet(StageLink& link);
  void Record(const v1::StepPlan& plan);
  void Record(uint64_t step, FlightTime what);
  void Read(size_t i);
  void Write();
  bool WriteFetch(std::unique_ptr<v1::KvFetch> fetch);
  // False: the stage has answered a fetch that it was not asked for.
  bool Fetched(size_t stage, const v1::KvFetched& fetched);
  // Reports only the first loss: the others follow from it.
  void Down(const StageLink& link, absl::Status status);
  // False: already closed.
  bool Close();
  void Report(const absl::Status& status);
  // The link that broke first, and the status that says so.
  std::pair<const StageLink*, absl::Status> Blame(const StageLink& link, absl::Status status);
  absl::Status AtStage(const StageLink& link, LossCause cause, absl::Status status) const;
  void CancelStreams();

  const v1::Lease lease_;
  const PipelineHooks hooks_;
  std::vector<StageLink> links_;
  StageClientEvents events_;
  std::thread writer_;
  bool started_ = false;
  FlightRecorder::Clock::time_point joined_at_;

  Mutex mutex_;
  CondVar wake_writer_;
  std::deque<std::unique_ptr<v1::StepPlan>> plans_ ABSL_GUARDED_BY(mutex_);
  std::deque<std::unique_ptr<v1::KvFetch>> fetches_ ABSL_GUARDED_BY(mutex_);
  FetchAnswers answers_ ABSL_GUARDED_BY(mutex_);
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;                // down or stopping
  std::optional<absl::Status> taken_ ABSL_GUARDED_BY(mutex_);  // another router has a stage
};

// A token id outside the vocabulary. Absent: there is none.
std::optional<int32_t> StrangeToken(const v1::StepResult& result, int32_t vocab_size) {
  const auto strange = [&](const auto& ids) -> std::optional<int32_t> {
    for (const int32_t id : ids) {
      if (id < 0 || id >= vocab_size) return id;
    }
    return std::nullopt;
  };
  for (const v1::SlotResult& slot : result.slots()) {
    std::optional<int32_t> token;
    if (slot.sampled() && slot.failure().empty()) token = strange(std::array{slot.token()});
    if (!token) token = strange(slot.logprobs().top_ids());
    for (int i = 0; !token && i < slot.prompt_logprobs_size(); ++i) {
      token = strange(slot.prompt_logprobs(i).top_ids());
    }
    if (token) return token;
  }
  return std::nullopt;
}

absl::Status Named(const StageLink& link, std::string_view what, const grpc::Status& status) {
  return absl::UnavailableError(
      fmt::format("{} {}: {}", link.name, what,
                  status.ok() ? "the worker closed the stream" : status.error_message()));
}

absl::Status PipelineClient::Start(StageClientEvents events) {
  SC_CHECK(!started_);
  started_ = true;
  events_ = std::move(events);
  // Send every hello before waiting for the first answer.
  for (StageLink& link : links_) {
    link.context = std::make_unique<grpc::ClientContext>();
    link.stream = link.stub->Step(link.context.get());
    v1::StepRequest hello;
    *hello.mutable_hello()->mutable_lease() = lease_;
    link.stream->Write(hello);  // a failure shows when the answer is read
  }
  absl::Status status;
  {
    // A gRPC read has no timeout of its own.
    Mutex mutex;
    CondVar done_changed;
    bool done = false;
    std::thread watchdog([&] {
      MutexLock lock(mutex);
      if (!done_changed.wait_for(lock, kReadyTimeout,
                                 [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) { return done; }))
        CancelStreams();
    });
    for (StageLink& link : links_) {
      status = Greet(link);
      if (!status.ok()) break;
    }
    {
      MutexLock lock(mutex);
      done = true;
    }
    done_changed.notify_one();
    watchdog.join();
  }
  if (!status.ok()) {
    CancelStreams();
    for (StageLink& link : links_) link.stream.reset();
    MutexLock lock(mutex_);
    closed_ = true;
    return status;
  }
  joined_at_ = FlightRecorder::Clock::now();
  if (hooks_.watch != nullptr) {
    hooks_.watch->Begin({.on_change = hooks_.on_stall,
                         .on_lost = [this](const absl::Status& status) { Fail(status); }});
  }
  for (size_t i = 0; i < links_.size(); ++i) {
    links_[i].reader = std::thread([this, i] { Read(i); });
  }
  writer_ = std::thread([this] { Write(); });
  return absl::OkStatus();
}

absl::Status PipelineClient::Greet(StageLink& link) {
  v1::StepResponse ready;
  if (!link.stream->Read(&ready)) {
    return Named(link, "did not open its step stream", link.stream->Finish());
  }
  if (!ready.has_ready() || ready.ready().lease().epoch() != lease_.epoch()) {
    return absl::FailedPreconditionError(
        fmt::format("{} sent an unexpected answer to the hello of epoch {}: run the same version "
                    "on router and workers, and check that no other router uses this worker",
                    link.name, lease_.epoch()));
  }
  return absl::OkStatus();
}

void PipelineClient::Record(const v1::StepPlan& plan) {
  if (hooks_.flight == nullptr) return;
  uint32_t n_prefill = 0, n_decode = 0;
  for (const v1::SlotDelta& slot : plan.slots()) {
    (slot.n_tokens() == 1 ? n_decode : n_prefill) += slot.n_tokens();
  }
  hooks_.flight->Begin(lease_.epoch(), plan.step(), n_prefill, n_decode,
                       FlightRecorder::Clock::now());
  if (plan.step() == 1 && hooks_.lost_at) {
    hooks_.flight->Mark(1, kFlightLost, *hooks_.lost_at);
    hooks_.flight->Mark(1, kFlightRejoined, joined_at_);
  }
}

void PipelineClient::Record(uint64_t step, FlightTime what) {
  if (hooks_.flight != nullptr) hooks_.flight->Mark(step, what);
}

void PipelineClient::Send(std::unique_ptr<v1::StepPlan> plan) {
  Record(*plan);
  if (hooks_.watch != nullptr) hooks_.watch->Sent(*plan);
  {
    MutexLock lock(mutex_);
    if (closed_) return;
    plans_.push_back(std::move(plan));
  }
  wake_writer_.notify_one();
}

void PipelineClient::Fetch(uint64_t epoch, std::unique_ptr<v1::KvFetch> fetch) {
  if (epoch != lease_.epoch()) return;
  {
    MutexLock lock(mutex_);
    if (closed_) return;
    answers_.Ask(fetch->id());
    fetches_.push_back(std::move(fetch));
  }
  wake_writer_.notify_one();
}

void PipelineClient::Write() {
  v1::StepRequest request;
  while (true) {
    std::unique_ptr<v1::KvFetch> fetch;
    {
      MutexLock lock(mutex_);
      wake_writer_.wait(lock, [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
        return closed_ || !plans_.empty() || !fetches_.empty();
      });
      if (closed_) return;
      if (!plans_.empty()) {
        request.set_allocated_plan(plans_.front().release());
        plans_.pop_front();
      } else {
        fetch = std::move(fetches_.front());
        fetches_.pop_front();
      }
    }
    // If a write fails, the stream has ended; its reader reports the reason.
    if (fetch != nullptr) {
      if (!WriteFetch(std::move(fetch))) return;
      continue;
    }
    if (!links_.front().stream->Write(request)) return;
    Record(request.plan().step(), kFlightDispatched);
  }
}

bool PipelineClient::WriteFetch(std::unique_ptr<v1::KvFetch> fetch) {
  v1::StepRequest request;
  request.set_allocated_fetch(fetch.release());
  for (StageLink& link : links_) {
    if (!link.stream->Write(request)) return false;
  }
  return true;
}

bool PipelineClient::Fetched(size_t stage, const v1::KvFetched& fetched) {
  std::optional<v1::KvFetched> of_all;
  {
    MutexLock lock(mutex_);
    if (closed_) return true;
    if (!answers_.Answer(stage, fetched, of_all)) return false;
  }
  if (of_all) events_.on_fetched(*of_all);
  return true;
}

void PipelineClient::Read(size_t i) {
  StageLink& link = links_[i];
  v1::StepResponse response;
  while (link.stream->Read(&response)) {
    if (response.has_draining()) {
      if (hooks_.on_draining) {
        hooks_.on_draining(AtStage(link, LossCause::kHandedOver,
                                   absl::UnavailableError(link.name + " is shutting down")));
      }
      continue;
    }
    if (response.has_progress()) {
      if (hooks_.watch != nullptr) hooks_.watch->Heard(i, response.progress());
      continue;
    }
    if (response.has_fetched() && Fetched(i, response.fetched())) continue;
    if (i + 1 != links_.size() || !response.has_result()) {
      Down(link, absl::UnavailableError(link.name +
                                        " sent an unexpected message (results come from the last "
                                        "stage only, and one answer to each fetch): run the same "
                                        "version on router and workers"));
      break;
    }
    if (const auto token = StrangeToken(response.result(), hooks_.vocab_size)) {
      Down(link, absl::UnavailableError(
                     fmt::format("{} sent token id {} in step {}, outside the vocabulary of {}: "
                                 "run the same version on router and workers",
                                 link.name, *token, response.result().step(), hooks_.vocab_size)));
      break;
    }
    Record(response.result().step(), kFlightResult);
    if (hooks_.watch != nullptr) hooks_.watch->Result(response.result().step());
    events_.on_result(std::unique_ptr<v1::StepResult>(response.release_result()));
  }
  const grpc::Status status = link.stream->Finish();
  if (status.error_code() == grpc::StatusCode::ABORTED) {
    MutexLock lock(mutex_);
    if (!taken_) taken_ = Named(link, "is lost", status);
  }
  Down(link, Named(link, "is lost", status));
}

// When a worker dies, its neighbours also notice and end their streams, possibly before this client
// sees the end of the dead worker's stream. The status must then name the stage whose connection
// broke, or that another router took.
std::pair<const StageLink*, absl::Status> PipelineClient::Blame(const StageLink& link,
                                                                absl::Status status) {
  const auto taken = [this] {
    MutexLock lock(mutex_);
    return taken_;
  };
  if (const auto by_other = taken()) return {&link, *by_other};
  if (link.channel->GetState(false) != GRPC_CHANNEL_READY) return {&link, std::move(status)};
  const auto deadline = std::chrono::system_clock::now() + kSettleTime;
  while (std::chrono::system_clock::now() < deadline && links_.size() > 1) {
    for (const StageLink& other : links_) {
      if (&other == &link) continue;
      other.channel->WaitForStateChange(GRPC_CHANNEL_READY,
                                        std::chrono::system_clock::now() + kLookTime);
      if (other.channel->GetState(false) == GRPC_CHANNEL_READY) continue;
      return {&other,
              absl::UnavailableError(fmt::format("{} is lost: its connection broke ({})",
                                                 other.name, std::string(status.message())))};
    }
    if (const auto by_other = taken()) return {&link, *by_other};  // ABORTED came meanwhile
  }
  return {&link, std::move(status)};
}

absl::Status PipelineClient::AtStage(const StageLink& link, LossCause cause,
                                     absl::Status status) const {
  return WithLoss(std::move(status),
                  {.stage = static_cast<uint32_t>(&link - links_.data()), .cause = cause});
}

void PipelineClient::Down(const StageLink& link, absl::Status status) {
  if (!Close()) return;
  const auto [broken, reason] = Blame(link, std::move(status));
  // A stalled worker may have been killed for that.
  const bool stalled =
      hooks_.watch != nullptr && !hooks_.watch->Read().stalled[broken - links_.data()].empty();
  Report(AtStage(*broken, stalled ? LossCause::kStalled : LossCause::kLost, reason));
}

void PipelineClient::Fail(const absl::Status& reason) {
  if (Close()) Report(reason);
}

bool PipelineClient::Close() {
  {
    MutexLock lock(mutex_);
    if (std::exchange(closed_, true)) return false;
    plans_.clear();
    fetches_.clear();
  }
  wake_writer_.notify_one();
  return true;
}

void PipelineClient::Report(const absl::Status& status) {
  CancelStreams();
  events_.on_down(status);
}

void PipelineClient::CancelStreams() {
  for (StageLink& link : links_) link.context->TryCancel();
}

void PipelineClient::Stop() {
  if (!started_) return;
  if (hooks_.watch != nullptr) hooks_.watch->End();
  Close();
  CancelStreams();
  for (StageLink& link : links_) {
    if (link.reader.joinable()) link.reader.join();
  }
  if (writer_.joinable()) writer_.join();
}

}  // namespace

std::unique_ptr<StageClient> MakePipelineClient(std::vector<std::string> addresses, v1::Lease lease,
                                                PipelineHooks hooks, const InternalAccess& access) {
  return std::make_unique<PipelineClient>(std::move(addresses), std::move(lease), std::move(hooks),
                                          access);
}

}  // namespace stagecoach::router
