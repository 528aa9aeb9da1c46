// A connection to a server. Its error messages say what a user at a terminal can do.
#pragma once

#include <chrono>
#include <functional>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cli/connection.h"
#include "common/mutex.h"
#include "stagecoach/v1/inference.pb.h"

namespace stagecoach::cli {

using PieceFn = std::function<void(const v1::GenerateResponse&)>;

// Cancels an answer from another thread. Thread-safe.
class Canceller {
 public:
  void Cancel();

  // Clients set the action that cancels the call in progress, and clear it (nullptr) when the call
  // ends. If Cancel was called before, Set runs the action at once.
  void Set(std::function<void()> action);

  // Waits until Cancel is called or `time` has passed. Returns whether Cancel was called.
  bool WaitFor(std::chrono::milliseconds time);

 private:
  Mutex mutex_;
  CondVar cancelled_;
  bool is_cancelled_ ABSL_GUARDED_BY(mutex_) = false;
  std::function<void()> action_ ABSL_GUARDED_BY(mutex_);
};

// Thread-safe.
class Client {
 public:
  virtual ~Client() = default;

  // Calls `on_piece` on the caller's thread for every message of the stream. If the connection
  // breaks, says so on standard error and goes on over another one, for as long as
  // Connection::resume_limit allows. Returns CANCELLED if `canceller` (may be null) cancelled the
  // call; the server then ends the request too.
  virtual absl::Status Stream(const v1::GenerateRequest& request, const PieceFn& on_piece,
                              Canceller* canceller = nullptr) const = 0;
  virtual absl::Status Stream(const v1::ChatRequest& request, const PieceFn& on_piece,
                              Canceller* canceller = nullptr) const = 0;
  // The served model, with at least `id` and `max_model_len`. UNAVAILABLE if no server answers
  // within some seconds.
  virtual absl::StatusOr<v1::Model> GetModel() const = 0;
};

// Longest wait until a server has heard that its stream is not wanted any more.
inline constexpr std::chrono::seconds kDropTimeout(2);

// For the help of commands that use a Client.
inline constexpr char kReconnectHelp[] =
    "If the connection breaks, the command connects again for up to 30 s and continues the answer.";

// Connects by gRPC or HTTP, depending on the form of the address. INVALID_ARGUMENT for an invalid
// address.
absl::StatusOr<std::unique_ptr<Client>> Connect(const Connection& connection);

}  // namespace stagecoach::cli
