#include "worker/service/load_beat.h"

#include <pthread.h>

#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/mapped_file.h"
#include "common/mutex.h"

namespace stagecoach::worker {
namespace {

using Clock = std::chrono::steady_clock;

constexpr auto kInterval = std::chrono::milliseconds(100);

}  // namespace

LoadBeat::LoadBeat(grpc::ServerContext* context, grpc::ServerWriter<v1::LoadProgress>* writer,
                   std::shared_ptr<WorkCounter> work,
                   std::function<void(const std::string& doing)> on_stuck)
    : context_(context),
      writer_(writer),
      work_(std::move(work)),
      on_stuck_(std::move(on_stuck)),
      thread_([this](const std::stop_token& stop) { Run(stop); }) {}

LoadBeat::~LoadBeat() {
  thread_.request_stop();
  thread_.join();
  writer_->Write(Read());
}

void LoadBeat::SetBytes(uint64_t done, uint64_t total) {
  const MutexLock lock(mutex_);
  progress_.set_bytes_done(done);
  progress_.set_bytes_total(total);
}

void LoadBeat::SetDoing(std::string doing) {
  const MutexLock lock(mutex_);
  progress_.set_doing(std::move(doing));
}

v1::LoadProgress LoadBeat::Read() {
  const MutexLock lock(mutex_);
  v1::LoadProgress progress = progress_;
  progress.set_work(*work_);
  if (progress.doing().empty()) {
    const std::string file = FileBeingRead();
    progress.set_doing(file.empty() ? "looking for the checkpoint"
                                    : absl::StrCat("reading ", file));
  }
  return progress;
}

void LoadBeat::Run(const std::stop_token& stop) {
  pthread_setname_np(pthread_self(), "load beat");
  std::pair<uint64_t, uint64_t> last;
  std::optional<Clock::time_point> unwanted_since;
  bool given_up = false;
  while (!stop.stop_requested()) {
    const v1::LoadProgress progress = Read();
    const std::pair now(progress.bytes_done(), progress.work());
    if (!context_->IsCancelled()) {
      writer_->Write(progress);
    } else if (!unwanted_since || now != last) {
      unwanted_since = Clock::now();
    } else if (!given_up && Clock::now() - *unwanted_since > kGiveUp) {
      given_up = true;
      on_stuck_(progress.doing());
    }
    last = now;
    WaitForStop(stop, kInterval);
  }
}

}  // namespace stagecoach::worker
