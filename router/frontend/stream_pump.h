// Sends a kept stream to one client.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "common/work_queue.h"
#include "router/frontend/stream_source.h"
#include "router/frontend/stream_store.h"

namespace stagecoach::router {

// All state belongs to a text thread. The client's end does not affect the stream itself.
class StreamPump : public StreamSource, public std::enable_shared_from_this<StreamPump> {
 public:
  void Start() final;
  void WriteDone(bool ok) final;
  void Cancel() final;

 protected:
  // Joins entries of the stream up to `max_bytes` per write. `lane` has one thread and outlives
  // the pump.
  StreamPump(std::unique_ptr<StreamReader> reader, size_t max_bytes, WorkQueue* lane)
      : reader_(std::move(reader)), max_bytes_(max_bytes), lane_(lane) {}

 private:
  // The client's protocol; these run on the text thread.
  //
  // The request was accepted. Called at most once, before any Write.
  virtual void OnAccepted() {}
  // Returns whether more can be written at once. If not, WriteDone must follow.
  virtual bool Write(std::string data) = 0;
  // The last call; the client may be gone.
  virtual void End(const absl::Status& status) = 0;

  void Post(std::function<void(StreamPump&)> action);
  // Writes available data, or ends, if possible now.
  void Pump();

  std::unique_ptr<StreamReader> reader_;  // null: the pump has ended
  const size_t max_bytes_;
  WorkQueue* const lane_;
  bool is_accepted_ = false;
  bool is_writing_ = false;
  bool is_gone_ = false;
};

}  // namespace stagecoach::router
